"""The kinds of steps: command, agent, model and tool, each built on an attempt."""
