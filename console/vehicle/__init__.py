"""Commands for a vehicle: agent, enrolment, import and collection of data, forecasts."""
