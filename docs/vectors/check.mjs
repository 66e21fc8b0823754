// Exact JSON in JavaScript, and a run of the vectors beside this file. Node's standard library only.
//
// An implementation of docs/exact-json.md that shares nothing with the Rust one. It leaves numbers and strings to the
// engine, whose printing RFC 8785 took as its definition.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const MAX_DEPTH = 64;
const TOKEN =
  /([ \t\n\r]+)|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(true|false|null)|([{}[\],:])/y;
const KINDS = ["space", "string", "number", "word", "mark"];

class Refused extends Error {
  constructor(kind, path = []) {
    super(kind);
    this.kind = kind;
    this.path = path.map((s) => "/" + String(s).replaceAll("~", "~0").replaceAll("/", "~1")).join("");
  }
}

/** The value of a text or of bytes: its tree, compact text, canonical form and digest. */
function parse(source, gate = "arguments") {
  if (typeof source !== "string") {
    try {
      source = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(source);
    } catch {
      throw new Refused("utf8");
    }
  }
  const tokens = tokensOf(source);
  const problems = [];
  const node = read(tokens, gate, problems);
  // Only now: a text that is not JSON is that before anything else.
  if (problems.length > 0) throw problems[0];
  const compact = tokens.map(([, text]) => text).join("");
  const canonicalText = canonical(node);
  const digest = "sha256:" + createHash("sha256").update(canonicalText, "utf8").digest("hex");
  return { node, compact, canonical: canonicalText, digest };
}

function tokensOf(source) {
  const tokens = [];
  for (TOKEN.lastIndex = 0; TOKEN.lastIndex < source.length; ) {
    const match = TOKEN.exec(source);
    if (match === null) throw new Refused("syntax");
    const kind = KINDS[match.slice(1).findIndex((part) => part !== undefined)];
    if (kind !== "space") tokens.push([kind, match[0]]);
  }
  return tokens;
}

// A node is {kind, content}: a Map of nodes, an array of nodes, a string, a number's text, or a word.
function read(tokens, gate, problems) {
  const stack = [];
  let result;
  let want = "value";
  const path = () => stack.map(({ kind, content, key }) => (kind === "object" ? key : content.length));
  const put = (node) => {
    const top = stack.at(-1);
    if (top === undefined) result = node;
    else if (top.kind === "array") top.content.push(node);
    else if (!top.content.has(top.key)) top.content.set(top.key, node);
  };
  const characters = (text) => {
    const value = JSON.parse(text);
    if (!value.isWellFormed()) problems.push(new Refused("lone-surrogate", path()));
    return value;
  };
  for (const [kind, text] of tokens) {
    const top = stack.at(-1);
    const end = top === undefined ? undefined : top.kind === "object" ? "}" : "]";
    if (want === "value" || (want === "value or ]" && text !== "]")) {
      want = "comma";
      if (text === "{" || text === "[") {
        if (stack.length === MAX_DEPTH) problems.push(new Refused("too-deep"));
        stack.push(text === "{" ? { kind: "object", content: new Map() } : { kind: "array", content: [] });
        want = text === "{" ? "key or }" : "value or ]";
      } else if (kind === "string") {
        put({ kind, content: characters(text) });
      } else if (kind === "number") {
        if (gate === "arguments" && !interoperable(text)) problems.push(new Refused("number", path()));
        put({ kind, content: text });
      } else if (kind === "word") {
        put({ kind, content: text });
      } else throw new Refused("syntax");
    } else if (kind === "string" && (want === "key" || want === "key or }")) {
      top.key = characters(text);
      if (top.content.has(top.key)) problems.push(new Refused("duplicate-key", path()));
      if (top.key === "__proto__") problems.push(new Refused("proto-key", path()));
      want = "colon";
    } else if (want === "colon" && text === ":") {
      want = "value";
    } else if (want === "comma" && top !== undefined && text === ",") {
      want = top.kind === "object" ? "key" : "value";
    } else if (text === end && ["comma", "key or }", "value or ]"].includes(want)) {
      stack.pop();
      put({ kind: top.kind, content: top.content });
      want = "comma";
    } else throw new Refused("syntax");
  }
  if (stack.length > 0 || want !== "comma") throw new Refused("syntax");
  return result;
}

/** A number as "sign digits exponent", digits x 10^exponent without outer zeros. Undefined if the exponent is huge. */
function decimal(text) {
  const [, sign, whole, fraction = "", power = "0"] = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/.exec(text);
  const all = whole + fraction;
  let from = 0;
  while (all[from] === "0") from += 1;
  let to = all.length;
  while (to > from && all[to - 1] === "0") to -= 1;
  if (from === to) return { sign: "", digits: "", exponent: 0 };
  const magnitude = power.replace(/^[+-]/, "").replace(/^0+/, "");
  // A double holds the sum exactly to 15 digits; the rules allow 17, but no vector needs them.
  if (magnitude.length > 15) return undefined;
  const exponent = (power.startsWith("-") ? -1 : 1) * Number(magnitude) - fraction.length + (all.length - to);
  return { sign, digits: all.slice(from, to), exponent };
}

const same = (a, b) =>
  a !== undefined && b !== undefined && a.sign === b.sign && a.digits === b.digits && a.exponent === b.exponent;

function interoperable(text) {
  const value = decimal(text);
  if (value === undefined) return false;
  if (value.digits === "") return true;
  if (value.digits.length > 17 || Math.abs(value.exponent) > 400) return false;
  const nearest = Number(`${value.sign}${value.digits}e${value.exponent}`);
  return Number.isFinite(nearest) && same(decimal(String(nearest)), value);
}

function printNumber(text) {
  if (interoperable(text)) return String(Number(text) + 0); // + 0 turns -0 into 0
  const value = decimal(text);
  if (value === undefined) return text;
  const { sign, digits, exponent } = value;
  const k = digits.length;
  const n = k + exponent;
  if (k <= n && n <= 21) return sign + digits + "0".repeat(n - k);
  if (0 < n && n <= 21) return `${sign}${digits.slice(0, n)}.${digits.slice(n)}`;
  if (-6 < n && n <= 0) return `${sign}0.${"0".repeat(-n)}${digits}`;
  const mantissa = k > 1 ? `${digits[0]}.${digits.slice(1)}` : digits;
  return `${sign}${mantissa}e${n > 0 ? "+" : "-"}${Math.abs(n - 1)}`;
}

function canonical({ kind, content }) {
  switch (kind) {
    case "object": {
      const keys = [...content.keys()].sort(); // by UTF-16 code units
      return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(content.get(key))}`).join(",")}}`;
    }
    case "array":
      return `[${content.map(canonical).join(",")}]`;
    case "string":
      return JSON.stringify(content);
    case "number":
      return printNumber(content);
    default:
      return content;
  }
}

function equal(a, b) {
  if (a.kind !== b.kind) return false;
  const [x, y] = [a.content, b.content];
  switch (a.kind) {
    case "object":
      return x.size === y.size && [...x].every(([key, value]) => y.has(key) && equal(value, y.get(key)));
    case "array":
      return x.length === y.length && x.every((value, i) => equal(value, y[i]));
    case "number":
      return x === y || same(decimal(x), decimal(y));
    default:
      return x === y;
  }
}

// The vectors.

const textOf = (text) => (typeof text === "string" ? text : text.map(([part, count]) => part.repeat(count)).join(""));

function accepted(vector) {
  const value = parse(textOf(vector.text), vector.gate);
  return ["compact", "canonical", "digest"].filter((name) => value[name] !== textOf(vector[name]));
}

function refused(vector) {
  const source = vector.hex === undefined ? textOf(vector.text) : Buffer.from(vector.hex, "hex");
  try {
    parse(source, vector.gate);
  } catch (refusal) {
    if (!(refusal instanceof Refused)) throw refusal;
    const wrong = refusal.kind === vector.kind ? [] : [`kind ${refusal.kind}`];
    return refusal.path === (vector.path ?? refusal.path) ? wrong : [...wrong, `path ${refusal.path}`];
  }
  return ["passed"];
}

function pair(vector, expected) {
  const [a, b] = [vector.a, vector.b].map((text) => parse(textOf(text), vector.gate));
  const answers = { equality: equal(a.node, b.node), canonical: a.canonical === b.canonical, digest: a.digest === b.digest };
  return Object.keys(answers).filter((name) => answers[name] !== expected);
}

function double(vector) {
  const value = Buffer.from(vector.bits, "hex").readDoubleBE();
  if (vector.text === null) return Number.isFinite(value) ? ["is a number"] : [];
  const right = String(value) === vector.text && parse(vector.text).canonical === vector.text;
  return right ? [] : [`printed ${String(value)}`];
}

const checks = {
  "accepted.json": accepted,
  "refused.json": refused,
  "equal.json": (vector) => pair(vector, true),
  "different.json": (vector) => pair(vector, false),
  "numbers.json": double,
};
let passed = 0;
let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  for (const vector of JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8")).cases) {
    let wrong;
    try {
      wrong = check(vector);
    } catch (refusal) {
      wrong = [`refused: ${refusal.message}`];
    }
    if (wrong.length === 0) passed += 1;
    else {
      failed += 1;
      console.log(`${name}: ${vector.name}: ${wrong.join(", ")}`);
    }
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
