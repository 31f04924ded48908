"""What tests of agents on a broker in memory share."""

import pytest

from tests.support.agent_bench import Bench, first_task, rows


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def task():
    return first_task(rows())
