//! P6: comparing the call of a decision with the reviewed one, at the greatest size that a review has.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use countersign_approval_core::decision::DecisionRequest;
use countersign_approval_core::ids::{CallId, ToolName};
use countersign_approval_core::json::Exact;
use countersign_approval_core::snapshot::{Snapshot, ToolCall};
use countersign_bench::stats::median;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::figure::{Figure, Point};
use crate::walk;

const BYTES: usize = 127_000;
const NAME: &str = "bulk";
const ID: &str = "call-1";

/// Texts of two values, and whether they must count as one value. A text that is refused before review counts as right.
const PAIRS: &[(&str, &str, bool)] = &[
    ("9007199254740993", "9007199254740992", false),
    ("123456789012345678901", "123456789012345678902", false),
    ("18446744073709551615", "18446744073709551616", false),
    ("0.1", "0.10000000000000001", false),
    (r#"{"a":1,"a":2}"#, r#"{"a":2}"#, false),
    (r#""\u00e9""#, r#""e\u0301""#, false),
    ("[1,2]", "[2,1]", false),
    ("1", "1.0", true),
    ("1e2", "100", true),
    ("0.0", "-0.0", true),
    (r#""\u00e9""#, "\"\u{e9}\"", true),
    (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, true),
];

/// Microseconds of each way to compare, measured by turns.
pub(crate) fn measure(samples: usize) -> Result<Vec<Figure>> {
    let stored = document();
    let call = json!({"id": ID, "name": NAME, "arguments": stored});
    let text = serde_json::to_string(&call)?;
    let arguments = serde_json::to_string(&stored)?;
    let snapshot = Snapshot::freeze(ToolCall {
        id: CallId::parse(ID)?,
        name: ToolName::parse(NAME)?,
        arguments: Exact::parse(&arguments)?,
    })?;
    let mut reordered = String::new();
    reverse(&call, &mut reordered);
    let echo = body(&text);
    let other = body(&reordered);
    ensure!(text.len() > BYTES - 2_000 && reordered.len() == text.len() && reordered != text);

    let product = |body: &str| {
        DecisionRequest::parse_echo(black_box(body), |_| Some(snapshot.clone())).is_ok_and(|decision| {
            snapshot.binds(&decision.call.id, &decision.call.name, &decision.call.arguments)
        })
    };
    let tree = |body: &str| {
        serde_json::from_str::<Value>(black_box(body)).is_ok_and(|decision| decision["call"] == call)
    };
    let raw = |body: &str| {
        serde_json::from_str::<Raw<'_>>(black_box(body)).is_ok_and(|decision| {
            decision.decision == "approve" && !decision.approval_id.is_empty() && decision.call.get() == text
        })
    };
    let walked = |text_in: &str| walk::same(black_box(text_in.as_bytes()), text.as_bytes());

    let mut times: [Vec<f64>; 6] = Default::default();
    for _ in 0..samples {
        for (index, times) in times.iter_mut().enumerate() {
            let before = Instant::now();
            let same = match index {
                0 => product(&echo),
                1 => tree(&echo),
                2 => raw(&echo),
                3 => product(&other),
                4 => tree(&other),
                _ => walked(&reordered),
            };
            times.push(before.elapsed().as_secs_f64() * 1e6);
            ensure!(same, "way {index} says that the texts differ");
        }
    }
    let tail = |times: &[f64]| countersign_bench::stats::summary(times.to_vec()).p99;
    let [product_echo, tree_echo, raw, product_other, tree_other, walked] = times;
    let row = |id, product: Vec<f64>, tree: Vec<f64>, bound: Vec<f64>| {
        let tails = (tail(&product), tail(&tree));
        let (product, tree, bound) = (median(product), median(tree), median(bound));
        Figure {
            id,
            product: Point { middle: product, tail: Some(tails.0) },
            bound: Some(Point { middle: tree, tail: Some(tails.1) }),
            value: product / tree,
            bound_value: Some(bound / tree),
        }
    };
    Ok(vec![
        row("P6 echoed", product_echo, tree_echo, raw),
        row("P6 reordered", product_other, tree_other, walked),
        Figure::of("P6 pairs", wrong_pairs()? as f64),
    ])
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw<'a> {
    approval_id: &'a str,
    #[serde(borrow)]
    call: &'a RawValue,
    decision: &'a str,
}

fn body(call: &str) -> String {
    let id = "6f0c2d1e-0000-4000-8000-000000000000";
    format!(r#"{{"approvalId":"{id}","runId":"{id}","call":{call},"decision":"approve"}}"#)
}

/// Just below what a review may have.
fn document() -> Value {
    let mut items = Vec::new();
    let mut bytes = 0;
    for i in 0_u32.. {
        let item = json!({
            "id": i,
            "path": format!("/srv/data/{:06}/file-{i}.txt", u64::from(i) * 7919 % 1_000_003),
            "size": u64::from(i) * 104_729 % 10_000_000,
            "ratio": f64::from(i) / 7.0,
            "tags": ["alpha", "b\u{e9}ta", "quote\"d"],
            "flags": {"dry": i % 2 == 0, "owner": null},
        });
        bytes += item.to_string().len() + 1;
        if bytes + 100 > BYTES {
            break;
        }
        items.push(item);
    }
    json!({ "items": items })
}

/// The same value with the members of each object in reverse order.
fn reverse(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            out.push('{');
            for (index, (key, member)) in members.iter().rev().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                // Writing to a String cannot fail.
                let _ = write!(out, "{comma}{}:", Value::from(key.as_str()));
                reverse(member, out);
            }
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                reverse(element, out);
            }
            out.push(']');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// How many of the pairs are told apart, or not, wrongly.
fn wrong_pairs() -> Result<usize> {
    let mut wrong = 0;
    for (left, right, one_value) in PAIRS {
        let exact = |text: &str| Exact::parse(&format!(r#"{{"v":{text}}}"#));
        let right_answer = match (exact(left), exact(right)) {
            (Ok(left), Ok(right)) => (left == right) == *one_value,
            _ => true,
        };
        wrong += usize::from(!right_answer);
    }
    Exact::parse(r#"{"v":1}"#).context("the gate refuses everything")?;
    Ok(wrong)
}
