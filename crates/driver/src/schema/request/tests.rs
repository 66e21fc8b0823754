//! Contract 7.5, row by row, and law 9: no schema of a request is expensive.

use std::fmt::Write as _;

use countersign_approval_core::json::{Exact, Gate};

use super::{Budget, RequestSchema, Room};

fn compiled(schema: &str) -> Result<RequestSchema, String> {
    within(&mut Budget::new(&Room::default()), schema)
}

fn within(budget: &mut Budget, schema: &str) -> Result<RequestSchema, String> {
    let schema = Exact::parse_with(schema, Gate::OUTPUT).unwrap();
    RequestSchema::compile("outputSchema", &schema, budget).map_err(|error| {
        assert_eq!(error.code.as_str(), "INVALID_SCHEMA");
        assert!(error.message.starts_with("outputSchema: "), "{}", error.message);
        error.message
    })
}

#[track_caller]
fn fits(schema: &str, value: &str) -> bool {
    let schema = compiled(schema).unwrap();
    schema.check_here(&Exact::parse(value).unwrap()).is_ok()
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
    let told = schema.check_here(&Exact::parse(r#"{"a":["x",12345]}"#).unwrap()).unwrap_err();
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

#[test]
fn all_schemas_of_a_request_share_its_bounds() {
    // Law 9: 32 application tools bring 64 schemas, and whoever sends them need not be allowed to start a run.
    let patterns = |n: usize, tag: &str| {
        let each = |i: usize| format!(r#"{{"pattern":"[\\w-]{{38}}{tag}{i}"}}"#);
        format!(r#"{{"allOf":[{}]}}"#, (0..n).map(each).collect::<Vec<_>>().join(","))
    };
    let mut budget = Budget::new(&Room::default());
    assert!(within(&mut budget, &patterns(40, "i")).is_ok());
    assert!(within(&mut budget, &patterns(25, "o")).unwrap_err().contains("64 regular expressions"));
    assert!(within(&mut budget, &patterns(24, "o")).is_ok());
    assert!(within(&mut budget, &patterns(1, "p")).unwrap_err().contains("64 regular expressions"));

    let padded = |n: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(n - r#"{"title":""}"#.len()));
    let mut budget = Budget::new(&Room::default());
    for _ in 0..4 {
        assert!(within(&mut budget, &padded(128_000)).is_ok());
    }
    assert!(within(&mut budget, "{}").unwrap_err().contains("512000 bytes together"));
}

#[test]
fn anchors() {
    // Law 9: each of many references could mean each place of many; 33 places can be told apart by `$id`s, more cannot.
    let anchors = |n: usize, references: usize| {
        let places: Vec<_> = (0..n).map(|i| format!(r#""x{i}":{{"$id":"i{i}","$anchor":"a"}}"#)).collect();
        let references = vec![r##"{"$ref":"#a"}"##; references].join(",");
        format!(
            r##"{{"$schema":"https://json-schema.org/draft/2020-12/schema","$anchor":"a",
                "$defs":{{{}}},"properties":{{"b":{{"allOf":[{references}]}}}}}}"##,
            places.join(",")
        )
    };
    assert!(
        compiled(
            &anchors(32, 1)
                .replace(
                    r#""$anchor":"a",
                "$defs""#,
                    r#""$defs""#
                )
                .replace("\"#a\"", "\"i1#a\"")
        )
        .is_ok()
    );
    let same = anchors(34, 2_900).replace("$id", "x-id");
    assert!(compiled(&same).unwrap_err().contains("33 places"));
    // One reference, written 3,000 times, is looked up once, and the schema that it means counts each time.
    let often = anchors(1, 3_000).replace("$id", "x-id").replace(
        r#""$anchor":"a",
                "$defs""#,
        r#""$defs""#,
    );
    assert!(compiled(&often).is_ok());
}

/// What a schema says about a value: none if it fits.
fn told(schema: &str, value: &str) -> Option<String> {
    compiled(schema).unwrap().check_here(&Exact::parse_with(value, Gate::OUTPUT).unwrap()).err()
}

fn list(item: &str, n: usize) -> String {
    format!("[{}]", vec![item; n].join(","))
}

#[test]
fn values_that_would_take_too_long_are_not_checked() {
    // Law 9: no pair of a schema and a value keeps a thread for longer than a moment.
    let slow_enum = format!(
        r##"{{"definitions":{{"e":{{"enum":[{}1,"a"]}}}},"items":{{"allOf":{}}}}}"##,
        "{},".repeat(10_000),
        list(r##"{"$ref":"#/definitions/e"}"##, 100),
    );
    let constant =
        format!(r#"{{"items":{{"allOf":{}}}}}"#, list(r#"{"not":{"const":[1,2,3,4,5,6,7]}}"#, 1_000));
    let required = format!(
        r##"{{"definitions":{{"r":{{"required":[{}"a"]}}}},"items":{{"allOf":{}}}}}"##,
        (0..1_000).map(|i| format!(r#""n{i}","#)).collect::<String>(),
        list(r##"{"not":{"$ref":"#/definitions/r"}}"##, 100),
    );
    let lengths = format!(r#"{{"allOf":{}}}"#, list(r#"{"maxLength":999999}"#, 3_000));
    let pattern = r#"{"items":{"pattern":"([a-z]?){200}x[a-y]{200}$"}}"#.to_owned();
    let unique = format!(r#"{{"allOf":{}}}"#, list(r#"{"uniqueItems":true}"#, 10));
    // Each level asks the one below twice, one time to judge it and one time to see what it looked at.
    let mut marks = r#"{"required":["z"]}"#.to_owned();
    for _ in 0..25 {
        marks = format!(r#"{{"anyOf":[{marks},{{"minProperties":1}}],"unevaluatedProperties":true}}"#);
    }
    let marks = format!(r#"{{"$schema":"https://json-schema.org/draft/2020-12/schema",{}"#, &marks[1..]);
    // 1,000 ways from each value into the next one, each too short to be remembered.
    let ways = format!(
        r##"{{"enum":[{}{{"a":1}}],"properties":{{"a":{{"allOf":{}}},"b":{{"$ref":"#"}}}}}}"##,
        "{},".repeat(2_000),
        list(r##"{"$ref":"#"}"##, 1_000)
    );
    for (what, schema, few, many) in [
        ("enum", &slow_enum, list("1", 1), list("1", 30_000)),
        ("const", &constant, list("[1]", 10), list("[1]", 30_000)),
        ("required", &required, list("{}", 10), list("{}", 30_000)),
        ("text", &lengths, r#""a""#.to_owned(), format!(r#""{}""#, "a".repeat(500_000))),
        ("pattern", &pattern, list(r#""a""#, 3), list(&format!(r#""{}""#, "ab".repeat(100)), 2_000)),
        (
            "names",
            &pattern.replace("\"pattern\":", "\"propertyNames\":{\"pattern\":").replace("}}", "}}}"),
            "[]".to_owned(),
            format!(r#"[{{"{}":1}}]"#, "ab".repeat(250_000)),
        ),
        ("unique", &unique, list("1", 20_000), list("[[]]", 20_000)),
        ("unevaluated", &marks, "7".to_owned(), r#"{"a":1}"#.to_owned()),
        ("recursion", &ways, "1".to_owned(), r#"{"a":{"b":{"b":{}}}}"#.to_owned()),
    ] {
        let told_few = told(schema, &few).unwrap_or_default();
        assert!(
            what == "unevaluated" || what == "recursion" || !told_few.contains("steps"),
            "{what}: {told_few}"
        );
        let told_many = told(schema, &many).unwrap_or_default();
        assert!(told_many.contains("at most 50000000"), "{what}: {told_many}");
    }
}

#[test]
fn large_answers_of_ordinary_schemas_are_checked() {
    // The bounds are no burden: 500,000 bytes of records with names, dates, addresses, a choice of 300 words, a tree.
    let words = (0..300).map(|i| format!(r#""w{i}""#)).collect::<Vec<_>>().join(",");
    let record = format!(
        r##"{{"type":"object","additionalProperties":false,"required":["id","name","day","mail","word"],"properties":{{
            "id":{{"type":"string","pattern":"^[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}$"}},
            "name":{{"type":"string","minLength":1,"maxLength":200}},
            "day":{{"type":"string","pattern":"^\\d{{4}}-\\d{{2}}-\\d{{2}}$"}},
            "mail":{{"type":["string","null"],"pattern":"^[a-z0-9._-]+@[a-z0-9.-]+\\.[a-z]{{2,}}$"}},
            "word":{{"enum":[{words}]}},
            "tags":{{"type":"array","uniqueItems":true,"items":{{"type":"string"}}}}}}}}"##
    );
    let records = format!(r#"{{"type":"array","items":{record}}}"#);
    let one = r#"{"id":"01234567-89ab-cdef","name":"A name of some length","day":"2024-01-31","mail":"a.b@example.org",
        "word":"w299","tags":["a","b","c"]}"#;
    assert_eq!(told(&records, &list(one, 3_000)), None);
    let tree = r##"{"type":"object","required":["kind"],"properties":{"kind":{"enum":["a","b"]},
        "children":{"type":"array","items":{"anyOf":[{"$ref":"#"},{"type":"string"}]}}}}"##;
    let branch = format!(r#"{{"kind":"a","children":{}}}"#, list(r#"{"kind":"b","children":["x"]}"#, 60));
    assert_eq!(told(tree, &format!(r#"{{"kind":"a","children":{}}}"#, list(&branch, 30))), None);
}
