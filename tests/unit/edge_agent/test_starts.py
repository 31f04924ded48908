"""An agent on a broker in memory, in virtual time: births, wills, and whether it is alone."""

import numpy as np
import pytest

from schemas.errors import IdentityError, UsageError
from schemas.messages import AgentState
from tests.support.agent_bench import Bench
from tests.support.fake_coordinator import rows, source


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_agent_announces_what_it_can_when_connected(bench):
    bench.agent()
    bench.run()
    (birth,) = bench.coordinator.bodies(AgentState)
    assert (birth.status, birth.features, birth.target) == ("up", ["a", "b", "c"], "y")
    assert "frt" in birth.schemes


def test_agent_refuses_to_start_when_its_columns_do_not_fit_one_message(tmp_path):
    data = rows()
    wide = type(data)(tuple(f"column-{index:04d}" for index in range(999)), "y", np.zeros((60, 999)), data.y)
    with pytest.raises(UsageError, match=r"999 column names .* raise max_message_bytes"):
        Bench(tmp_path, limit=4096).agent(data=type(source())(wide, wide))


def test_agent_is_declared_down_by_its_will_when_killed(bench):
    agent = bench.agent()
    bench.run()
    bench.kill(agent)
    bench.run()
    assert [state.status for state in bench.coordinator.bodies(AgentState)] == ["up", "down"]


def test_agent_refuses_to_start_when_another_one_holds_its_state_directory(bench):
    bench.agent()
    with pytest.raises(IdentityError, match="--state-dir"):
        bench.agent()


def test_agent_refuses_to_start_when_its_allow_list_names_a_scheme_that_is_not_there(bench):
    with pytest.raises(UsageError, match="'alchemy' cannot be offered"):
        bench.agent(schemes=("alchemy",))
