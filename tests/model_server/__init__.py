"""A scripted model server on loopback: real HTTP in the shapes of Anthropic, OpenAI and Gemini, and no model behind it.

`python -m tests.model_server --port 0 --script file.json --port-file port` runs it by itself; `fixtures.py` has it as a
fixture. What it answers is a script (`script.py`); `GET /_requests` tells what it was asked, `PUT /_script` gives it
another script and forgets the rest. Under `/s/<agent>/<scenario>/<key>` it plays a scenario (`scenarios.py`) to an agent.
"""
