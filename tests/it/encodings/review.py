"""Approves the call in the approval.requested event on standard input: review.py URL plain|utf8|reversed"""

import json
import os
import sys
import urllib.error
import urllib.request


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(member) for key, member in reversed(value.items())}
    if isinstance(value, list):
        return [reversed_keys(element) for element in value]
    return value


url, how = sys.argv[1:]
approval = json.loads(sys.stdin.buffer.read())["approval"]
decision = {
    "approvalId": approval["approvalId"],
    "runId": approval["runId"],
    "call": reversed_keys(approval["call"]) if how == "reversed" else approval["call"],
    "decision": "approve",
}
body = json.dumps(decision, ensure_ascii=how != "utf8").encode()
headers = {
    "Authorization": "Bearer " + os.environ["REVIEW_TOKEN"],
    "AgenticDriver-Version": "1.0",
    "Content-Type": "application/json",
}
request = urllib.request.Request(url + "/v1/approvals/decisions", body, headers)
# A proxy of the environment has no business between two ends of one machine.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with opener.open(request) as answer:
        print(answer.status, json.load(answer)["outcome"])
except urllib.error.HTTPError as refused:
    print(refused.code, json.load(refused)["error"]["code"])
