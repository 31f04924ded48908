"""The case study: a simulator of video streams on the road, and its windows."""
