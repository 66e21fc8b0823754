//! Contract 7.5, row by row, and law 9: no schema of a request is expensive.

use std::fmt::Write as _;

use countersign_approval_core::json::{Exact, Gate};

use super::RequestSchema;

fn compiled(schema: &str) -> Result<RequestSchema, String> {
    let schema = Exact::parse_with(schema, Gate::OUTPUT).unwrap();
    RequestSchema::compile("outputSchema", &schema).map_err(|error| {
        assert_eq!(error.code.as_str(), "INVALID_SCHEMA");
        assert!(error.message.starts_with("outputSchema: "), "{}", error.message);
        error.message
    })
}

#[track_caller]
fn fits(schema: &str, value: &str) -> bool {
    let schema = compiled(schema).unwrap();
    schema.check(&Exact::parse(value).unwrap()).is_ok()
}

#[test]
fn dialects() {
    // Contract 7.5: which `$schema` is which dialect. `prefixItems` says which one is in force.
    let told = r#""prefixItems":[{"type":"string"}]"#;
    for (uri, draft_2020) in [
        (None, false),
        (Some(r#""http://json-schema.org/draft-07/schema""#), false),
        (Some(r#""http://json-schema.org/draft-07/schema#""#), false),
        (Some(r#""https://json-schema.org/draft/2020-12/schema""#), true),
        (Some(r#""https://json-schema.org/draft/2020-12/schema#""#), true),
    ] {
        let schema = match uri {
            None => format!("{{{told}}}"),
            Some(uri) => format!(r#"{{"$schema":{uri},{told}}}"#),
        };
        assert_eq!(fits(&schema, "[1]"), !draft_2020, "{schema}");
        assert!(fits(&schema, r#"["a"]"#), "{schema}");
    }
    for uri in [
        r#""https://json-schema.org/draft-07/schema""#,
        r#""https://json-schema.org/draft-07/schema#""#,
        r#""http://json-schema.org/draft-06/schema#""#,
        r#""http://json-schema.org/draft-04/schema#""#,
        r#""https://json-schema.org/draft/2019-09/schema""#,
        r#""http://json-schema.org/draft/2020-12/schema""#,
        r#""http://json-schema.org/schema#""#,
        r#""""#,
        "7",
        "null",
        "{}",
    ] {
        assert!(compiled(&format!(r#"{{"$schema":{uri}}}"#)).is_err(), "{uri}");
    }
}

#[test]
fn refused() {
    // Contract 7.5: keywords with impossible values, references that lead out, asynchronous schemas.
    for schema in [
        r#"{"type":"strange"}"#,
        r#"{"type":["string","strange"]}"#,
        r#"{"type":7}"#,
        r#"{"required":"a"}"#,
        r#"{"minLength":-1}"#,
        r#"{"enum":7}"#,
        r#"{"properties":[]}"#,
        r#"{"properties":{"a":7}}"#,
        r#"{"pattern":"("}"#,
        r#"{"patternProperties":{"(":{}}}"#,
        // Only patterns of linear time: no look-around, no references back.
        r#"{"pattern":"(?=a)"}"#,
        r#"{"pattern":"(a)\\1"}"#,
        r#"{"pattern":"((a{1000}){1000}){1000}"}"#,
        r#"{"$ref":"http://127.0.0.1:1/schema"}"#,
        r#"{"properties":{"a":{"$ref":"https://example.org/a.json#/b"}}}"#,
        r#"{"properties":{"a":{"$ref":"file:///etc/passwd"}}}"#,
        r#"{"properties":{"a":{"$ref":"other.json"}}}"#,
        r##"{"properties":{"a":{"$ref":"#/$defs/none"}}}"##,
        r##"{"properties":{"a":{"$ref":"#none"}}}"##,
        r#"{"$async":true}"#,
        r#"{"properties":{"a":{"$async":true}}}"#,
        r#"{"$defs":{"a":{"$id":"a","$schema":"http://json-schema.org/draft-04/schema#"}}}"#,
        // They ask for themselves without a step into the value.
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}}}"##,
        r##"{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"properties":{"y":{"$ref":"#/$defs/b"}},
            "anyOf":[{"$ref":"#/$defs/b"}]},"b":{"if":{"$ref":"#/$defs/a"}}}}"##,
    ] {
        let error = compiled(schema).err();
        assert!(error.is_some(), "{schema}");
    }
}

#[test]
fn accepted() {
    // Contract 7.5: local references work, unknown keywords and formats assert nothing; defaults fill nothing.
    const D2020: &str = r#""$schema":"https://json-schema.org/draft/2020-12/schema""#;
    for (schema, good, bad) in [
        ("{}", "7", None),
        // Nothing uses it, and nothing is fetched.
        (r#"{"$defs":{"a":{"$ref":"http://127.0.0.1:1/a.json"}}}"#, "7", None),
        (r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}"##, r#""x""#, Some("7")),
        (r##"{"$ref":"#/definitions/a%20b","definitions":{"a b":{"type":"string"}}}"##, r#""x""#, Some("7")),
        (r##"{"$ref":"#/definitions/a~1b","definitions":{"a/b":{"type":"string"}}}"##, r#""x""#, Some("7")),
        (
            r#"{"$id":"https://example.org/a.json","allOf":[{"$ref":"b.json"}],
                "definitions":{"b":{"$id":"b.json","type":"string"}}}"#,
            r#""x""#,
            Some("7"),
        ),
        (
            r##"{"allOf":[{"$ref":"#b"}],"definitions":{"b":{"$id":"#b","type":"string"}}}"##,
            r#""x""#,
            Some("7"),
        ),
        (r#"{"x-unknown":[1,{"$async":1}],"type":"string"}"#, r#""x""#, Some("7")),
        (
            r#"{"properties":{"$ref":{"type":"string"},"$schema":{"type":"string"}}}"#,
            r#"{"$ref":"x"}"#,
            Some(r#"{"$ref":7}"#),
        ),
        (r#"{"enum":[{"$ref":"https://example.org/"}]}"#, r#"{"$ref":"https://example.org/"}"#, Some("{}")),
        (r#"{"format":"date-time"}"#, r#""no date""#, None),
        (r#"{"contentMediaType":"application/json","contentEncoding":"base64"}"#, r#""{""#, None),
        (r#"{"properties":{"a":{"default":1}},"required":["a"]}"#, r#"{"a":2}"#, Some("{}")),
        (r#"{"type":"integer"}"#, "1.0", Some("1.5")),
        (r#"{"type":"integer"}"#, "1", Some(r#""1""#)),
        (r#"{"const":{"a":[1,2.5]}}"#, r#"{"a":[1.0,25e-1]}"#, Some(r#"{"a":[1,2]}"#)),
        (r#"{"pattern":"^(a+)+$"}"#, r#""aaa""#, Some(r#""aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab""#)),
        (
            r##"{"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false}"##,
            r#"{"next":{"next":{}}}"#,
            Some(r#"{"next":{"next":{"x":1}}}"#),
        ),
    ] {
        assert!(fits(schema, good), "{schema}: {good}");
        if let Some(bad) = bad {
            assert!(!fits(schema, bad), "{schema}: {bad}");
        }
    }
    let tree = format!(
        r##"{{{D2020},"$defs":{{"t":{{"$dynamicAnchor":"t","properties":{{"a":{{"$dynamicRef":"#t"}}}},
            "unevaluatedProperties":false}}}},"$ref":"#/$defs/t"}}"##
    );
    assert!(fits(&tree, r#"{"a":{"a":{}}}"#));
    assert!(!fits(&tree, r#"{"a":{"b":{}}}"#));
}

#[test]
fn misfits_tell_the_place_and_no_value() {
    let schema = compiled(r#"{"properties":{"a":{"items":{"type":"string"}}}}"#).unwrap();
    let told = schema.check(&Exact::parse(r#"{"a":["x",12345]}"#).unwrap()).unwrap_err();
    assert!(told.starts_with("at /a/1: ") && !told.contains("12345"), "{told}");
}

#[test]
fn bounds() {
    // Law 9, at the edge where there is one.
    let id = |n: usize| format!(r#""d{n}":{{"$id":"d{n}"}}"#);
    let ids = |n: usize| format!(r#"{{"$defs":{{{}}}}}"#, (0..n).map(id).collect::<Vec<_>>().join(","));
    assert!(compiled(&ids(32)).is_ok());
    assert!(compiled(&ids(33)).unwrap_err().contains("32 `$id` members"));

    let pattern = |n: usize| format!(r#""p{n}":{{"pattern":"a{n}"}}"#);
    let patterns =
        |n: usize| format!(r#"{{"properties":{{{}}}}}"#, (0..n).map(pattern).collect::<Vec<_>>().join(","));
    assert!(compiled(&patterns(64)).is_ok());
    assert!(compiled(&patterns(65)).unwrap_err().contains("64 regular expressions"));

    let padded = |n: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(n - r#"{"title":""}"#.len()));
    assert!(compiled(&padded(128_000)).is_ok());
    assert!(compiled(&padded(128_001)).unwrap_err().contains("at most 128000"));

    // Each refers to the next one: so many schemas one inside another.
    let chain = |n: usize| {
        let mut defs = String::new();
        for i in 1..n {
            let to =
                if i + 1 == n { "{}".to_owned() } else { format!(r##"{{"$ref":"#/$defs/d{}"}}"##, i + 1) };
            write!(defs, r#""d{i}":{to},"#).unwrap();
        }
        format!(r##"{{"$ref":"#/$defs/d1","$defs":{{{}}}}}"##, defs.trim_end_matches(','))
    };
    assert!(compiled(&chain(64)).is_ok());
    assert!(compiled(&chain(65)).unwrap_err().contains("64"));

    // Each refers to the next one twice: 2^13 - 1 schemas are few enough, 2^14 - 1 are not.
    let twice = |n: usize, with: &str| {
        let mut defs = String::new();
        for i in 1..n {
            let to = format!(r##"{{"$ref":"#/$defs/d{}"}}"##, i + 1);
            write!(
                defs,
                r#""d{i}":{{"{with}":{}}},"#,
                if with == "allOf" { format!("[{to},{to}]") } else { format!(r#"{{"a":{to},"b":{to}}}"#) }
            )
            .unwrap();
        }
        format!(r##"{{"$ref":"#/$defs/d1","$defs":{{{defs}"d{n}":{{}}}}}}"##)
    };
    for with in ["allOf", "properties"] {
        assert!(compiled(&twice(12, with)).is_ok());
        assert!(compiled(&twice(13, with)).unwrap_err().contains("10000 schemas"));
        assert!(compiled(&twice(30, with)).unwrap_err().contains("10000 schemas"));
    }
}

#[test]
fn deep_values_in_schemas_that_refer_to_themselves() {
    // Law 9: two ways to each level must not double the work at each, and sixty schemas a level must not use up the stack.
    let deep =
        |name: &str, core: &str| format!("{}{core}{}", format!(r#"{{"{name}":"#).repeat(63), "}".repeat(63));
    let two_ways = r##"{"properties":{"a":{"anyOf":[{"properties":{"b":{"$ref":"#"},"a":{"$ref":"#"}},"required":["c"]},
        {"properties":{"a":{"$ref":"#"}}},{"$ref":"#"}]}}}"##;
    assert!(fits(two_ways, &deep("a", "1")));
    let unevaluated = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema",
        "anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["z"]},{"properties":{"a":{"$ref":"#"}}}],
        "unevaluatedProperties":false}"##;
    assert!(fits(unevaluated, &deep("a", "{}")));
    assert!(!fits(unevaluated, &deep("a", r#"{"b":1}"#)));

    // A host's own tool, whose arguments a model writes, is no worse off.
    let tool = r##"{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["z"]},
        {"properties":{"a":{"$ref":"#"}},"additionalProperties":false}]}"##;
    let tool = crate::schema::InputSchema::of_tool(&Exact::parse(tool).unwrap()).unwrap();
    let (good, bad) = (deep("a", "{}"), deep("a", r#"{"b":1}"#));
    assert!(tool.check(&Exact::parse(&good).unwrap()).is_ok() && tool.explain(&good).is_ok());
    assert!(tool.check(&Exact::parse(&bad).unwrap()).is_err() && tool.explain(&bad).is_err());

    let link = |i| format!(r##""d{i}":{{"allOf":[{{"$ref":"#/$defs/d{}"}}]}},"##, i + 1);
    let links: String = (1..30).map(link).collect();
    let long_way = format!(
        r##"{{"$ref":"#/$defs/d1","$defs":{{{links}"d30":{{"properties":{{"a":{{"$ref":"#/$defs/d1"}}}}}}}}}}"##
    );
    assert!(fits(&long_way, &deep("a", "1")));
    assert!(!fits(
        &long_way.replace(r#"{"properties""#, r#"{"type":"object","properties""#),
        &deep("a", "1")
    ));
}
