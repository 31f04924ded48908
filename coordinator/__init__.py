"""The cloud service: opens rounds, counts answers, keeps the journal, publishes models, serves HTTP."""
