"""Live calls to any endpoint that speaks OpenAI's protocol."""

from bamas_lite.endpoints.chat import EndpointError, OpenAIChat

__all__ = ["EndpointError", "OpenAIChat"]
