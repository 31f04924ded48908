"""The cloud service: opens rounds, counts answers, keeps the journal, publishes models, serves HTTP."""

import schemas.plain_structlog  # noqa: F401 - before anything else imports structlog
