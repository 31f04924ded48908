"""Commands for a vehicle: agent, enrolment, data checks and collection, forecasts."""
