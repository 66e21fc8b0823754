//! Programs as agents write them: TypeScript, positions, what is not offered (design 5).

use countersign_sandbox_js::RunOutcome;
use proptest::prelude::*;

use super::harness::{run, run_limited, summary, value};

#[tokio::test]
async fn typescript_runs() {
    let code = r#"
interface Row { id: number; name?: string }
type Rows = Row[];
const rows: Rows = [{ id: 1 }, { id: 2, name: 'b' }];
class Box<T> implements Iterable<T> {
    private items: T[] = [];
    constructor(...items: T[]) { this.items = items; }
    public *[Symbol.iterator](): Iterator<T> { yield* this.items }
    get size(): number { return this.items.length as number }
}
function first<T>(this: void, list: readonly T[], fallback?: T): T | undefined { return list[0] ?? fallback }
const later = async <T,>(value: T): Promise<T> => await (value as T);
const wide = (row: Row): {
    id: number
} => ({ id: row.id })
const echoed = await read({ id: rows[0]!.id } satisfies Row);
let total!: number
total = [...new Box<number>(1, 2, 3)].reduce((a: number, b) => a + b, 0) as number
;[1].forEach((n: number) => { total += n })
return { echoed, total, first: first<Row>(rows)!.id, later: await later(5), wide: wide(rows[1]), size: new Box(1).size }
"#;
    assert_eq!(
        value(code).await,
        r#"{"echoed":{"id":1},"total":7,"first":1,"later":5,"wide":{"id":2},"size":1}"#
    );
}

// Law 3: without its types a program does what it did with them, or is refused.
#[tokio::test]
async fn erasing_types_changes_nothing() {
    for (code, expected) in [
        ("class A { static readonly x = 1 } return [A.x, Object.keys(new A())]", "[1,[]]"),
        ("class A { static override y = 1; static readonly ['k'] = 2 } return [A.y, A.k]", "[1,2]"),
        ("class A { a = 1\n  private static readonly n = 7\n  protected m() { return 2 } } return [A.n, new A().m()]", "[7,2]"),
        ("interface I {} class A implements /* implements */ I { v = 1 } return new A().v /* end */", "1"),
        ("function f(this: any /* , */, a: number) { return a } return f(1)", "1"),
        ("return ((x: number) /* ) */ : {\n a: number } => ({ a: x }))(2).a", "2"),
        ("return [1].map(id => <any>[id])[0]", "[1]"),
        ("return [1].map(id => (<any>{ id }))[0]", r#"{"id":1}"#),
        ("return [1].map(id => ({ id } as any))[0]", r#"{"id":1}"#),
    ] {
        assert_eq!(value(code).await, expected, "{code}");
    }
    for code in [
        // Without the type a block, a declaration, and nothing returned.
        "return [1].map(id => <any>{ id })[0]",
        "const f = () => <any>/* { */ <any>{ a: 1 }.a as number; return f()",
        "<any>{ a: 1 }; return 1",
        "<any>function del() {}; await del({})",
        "return <any>\n7",
        "return <any>\u{2028}7",
        "return <any>\u{2029}7",
        "class A { accessor x: number = 1 }",
    ] {
        assert!(value(code).await.starts_with("Syntax: "), "{code}");
    }
}

// Lines and columns are those of the source as it was given, columns in UTF-16 units.
#[tokio::test]
async fn positions() {
    for (code, expected) in [
        ("throw new Error('x')", "Thrown: Error: x (line 1, column 11)"),
        ("\n\n   null.x", "line 3, column 4)"),
        ("const a: number = 1;\r\n/* \u{1f600} */ missing()", "(line 2, column 10)"),
        ("const s = '\u{e9}\u{1f600}'; missing()", "(line 1, column 18)"),
        ("await read({ a: 1 } as unknown as Record<string, number>); (null as any).x", "line 1, column 60)"),
        ("let a = 1;\nlet b = ;", "(line 2, column 9)"),
        ("return {", "(line 1, column 9)"),
        ("for (;;", "(line 1, column 8)"),
        ("f(9007199254740993)", "(line 1, column 3)"),
        ("let x = 1;\nlet x = 2;", "(line 2, column 7)"),
        ("await del({})", "(line 1, column 7)"),
        ("await Promise.all([\n  read({}),\n  del({}),\n])", "(line 3, column 3)"),
        ("const f = async () => {\n  await del({})\n}\nawait f()", "(line 2, column 9)"),
        ("'use strict'\nundefined_name", "(line 2, column 1)"),
        ("#!/usr/bin/env node\nmissing()", "(line 2, column 1)"),
    ] {
        let got = summary(&run(code).await);
        assert!(got.ends_with(expected), "{code}\n{got}");
    }
}

#[tokio::test]
async fn the_programs_own_stack_traces_are_those_of_its_source() {
    let code = "const f = () => { throw new Error('x') };\ntry { f() } catch (e) { return e.stack }";
    assert_eq!(value(code).await, r#""    at f (program:1:29)\n    at <anonymous> (program:2:7)\n""#);
}

#[tokio::test]
async fn programs_are_strict_functions_bodies() {
    for (code, expected) in [
        ("return 1", "1"),
        ("if (true) return 'early'; return 'late'", "\"early\""),
        ("undeclared = 1", "Thrown: ReferenceError: undeclared is not defined (line 1, column 1)"),
        ("return typeof undeclared", "\"undefined\""),
        ("// comment at the end", "null"),
        ("/* <!-- */ return '-->' + `<!--` // -->", "\"--><!--\""),
        ("let n = 3, s = ''; while (n --> 0) s += n; return s", "\"210\""),
        ("const del = 1; return del", "1"),
        (
            "return [typeof del, del.name, Object.isFrozen(del), 'del' in globalThis]",
            r#"["function","del",true,true]"#,
        ),
        ("try { del.x = 1 } catch (e) { return e.name }", "\"TypeError\""),
        ("try { new del() } catch (e) { return e.name }", "\"TypeError\""),
        ("return await (async function* () { yield 1 })().next()", r#"{"value":1,"done":false}"#),
        ("{ using a = { [Symbol.dispose]() {} } } return 1", "1"),
        ("return [1n + 2n === 3n, 0x1f, 1_000, 3.14159265358979323846]", "[true,31,1000,3.141592653589793]"),
    ] {
        assert_eq!(value(code).await, expected, "{code}");
    }
}

/// Pieces that source is made of, and some that it is not.
fn piece() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "<",
        ">",
        "=>",
        "=",
        ";",
        ",",
        ".",
        "?.",
        "?",
        ":",
        "!",
        "as ",
        "satisfies ",
        "type ",
        "interface ",
        "class ",
        "abstract ",
        "implements ",
        "extends ",
        "private ",
        "readonly ",
        "declare ",
        "enum ",
        "function ",
        "async ",
        "await ",
        "return ",
        "yield ",
        "const ",
        "let ",
        "x",
        "y",
        "T",
        "del",
        "read",
        "1",
        "9007199254740993",
        "0x20000000000001",
        "'s'",
        "`t${",
        "}`",
        "/r/",
        "//",
        "/*",
        "*/",
        "<!--",
        "-->",
        "\n",
        "\r\n",
        "\u{2028}",
        " ",
        "#p",
        "@d ",
        "import ",
        "export ",
        "for (",
        "of ",
        "in ",
        "if (",
        "else ",
        "while (",
        "do ",
        "try {",
        "catch (e: T) {",
        "new ",
        "typeof ",
        "\u{e9}",
        "\u{1f600}",
        "\"",
        "'",
        "\\",
        "...",
        "*",
        "+",
        "-",
        "/",
        "||=",
        "using ",
        "this",
        "super",
        "static ",
        "get ",
        "set ",
        "constructor(",
        "label: ",
        "break ",
        "debugger",
        "eval",
        "null",
    ]);
    prop_oneof![8 => known.prop_map(str::to_owned), 1 => "\\PC{1,4}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    // Law 9: whatever an agent writes, the answer is an outcome with a place inside the source, never a panic.
    #[test]
    fn any_source_has_an_outcome(pieces in prop::collection::vec(piece(), 0..40)) {
        let code = pieces.concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let outcome = runtime.block_on(run_limited(&code, |limits| limits.polls = 50));
        if let RunOutcome::Failed(failed) = outcome {
            prop_assert_ne!(failed.ending.kind(), "WorkerLost");
            if let Some(position) = failed.position {
                let lines = code.split('\n').count();
                prop_assert!((1..=lines).contains(&(position.line as usize)), "{failed}");
                let line = code.split('\n').nth(position.line as usize - 1).unwrap();
                prop_assert!(position.column as usize <= line.encode_utf16().count() + 2, "{failed}");
            }
        }
    }
}
