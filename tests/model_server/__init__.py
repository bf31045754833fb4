"""A scripted model server on loopback: real HTTP in the formats of Anthropic, OpenAI and Gemini, with no model behind it.

`python -m tests.model_server --port 0 --script file.json --port-file port` runs it by itself; `fixtures.py` has it as a
fixture. A script (`script.py`) has its answers. `GET /_requests` returns the requests so far, `PUT /_script` sets
another script and forgets them. Under `/s/<agent>/<scenario>/<key>` it plays a scenario (`scenarios.py`) to an agent.
"""
