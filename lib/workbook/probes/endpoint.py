"""Which models an OpenAI-compatible server serves, asked from here.

    python endpoint.py URL

Prints {"models": [{"id": NAME, "max_model_len": TOKENS or null}, ...]}, or {"error": TEXT}.
Standard library only. A key for the server is taken from OPENAI_API_KEY, as SGLang's benchmark does.
"""

import json
import os
import sys
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

TIMEOUT_S = 20
LONGEST = 10 * 2**20  # bytes of an answer


def models(url):
    """Every model with its longest context in tokens, where the server tells it."""
    key = os.environ.get("OPENAI_API_KEY")
    request = Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"} if key else {})
    with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
        found = [
            {"id": str(one["id"]), "max_model_len": one.get("max_model_len")}
            for one in json.loads(answer.read(LONGEST))["data"]
        ]
    for one in found:
        one["id"].encode()  # half a surrogate pair, which JSON can tell and no file can keep, is a ValueError
    return found


def main(argv):
    if len(argv) != 1:
        print("usage: endpoint.py URL", file=sys.stderr)
        return 2
    try:
        answer = {"models": models(argv[0])}
    except HTTPError as error:
        answer = {"error": f"it answers /v1/models with {error.code} {error.reason}"}
    except (OSError, HTTPException) as error:
        answer = {"error": str(getattr(error, "reason", None) or error)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        answer = {"error": "its answer to /v1/models is not that of an OpenAI-compatible server"}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
