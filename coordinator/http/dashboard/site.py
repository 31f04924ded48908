"""All addresses of the dashboard, put together."""

from __future__ import annotations

from fastapi import FastAPI

from coordinator.http.dashboard.actions import add_actions
from coordinator.http.dashboard.model_actions import add_model_actions
from coordinator.http.dashboard.model_pages import add_model_pages
from coordinator.http.dashboard.pages import Dashboard


def add_dashboard(app: FastAPI, dashboard: Dashboard) -> None:
    """Give an application all pages, streams and forms."""
    dashboard.add_pages(app)
    add_model_pages(app, dashboard)
    add_model_actions(app, dashboard)
    add_actions(app, dashboard)
