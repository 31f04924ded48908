"""The case study: forecasting the Quality of Experience of a video stream on the road."""
