// Approves the call in the `approval.requested` event on standard input: node review.mjs URL plain|escaped|reversed
import { readFileSync } from "node:fs";
import { request } from "node:http";

const [url, how] = process.argv.slice(2);
const { approval } = JSON.parse(readFileSync(0, "utf8"));

function reversed(value) {
  if (Array.isArray(value)) return value.map(reversed);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).reverse().map(([key, member]) => [key, reversed(member)]));
}

let call = approval.call;
if (how === "reversed") call = reversed(call);
let body = JSON.stringify({ approvalId: approval.approvalId, runId: approval.runId, call, decision: "approve" });
if (how === "escaped") {
  // UTF-16 units, so a character beyond the first plane becomes a pair.
  body = body.replace(/[<>&\u007f-\uffff]/g, (unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0"));
}

const headers = {
  "Authorization": `Bearer ${process.env.REVIEW_TOKEN}`,
  "AgenticDriver-Version": "1.0",
  "Content-Type": "application/json",
  "Content-Length": Buffer.byteLength(body),
};
const sent = request(new URL("/v1/approvals/decisions", url), { method: "POST", headers }, (answer) => {
  let text = "";
  answer.setEncoding("utf8");
  answer.on("data", (chunk) => { text += chunk; });
  answer.on("end", () => {
    const said = JSON.parse(text);
    console.log(answer.statusCode, said.outcome ?? said.error.code);
  });
});
sent.end(body);
