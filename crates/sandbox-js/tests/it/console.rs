//! What a program prints (scenarios W50, W52; sandbox spec R1.7).

use super::harness::{run, run_limited, summary};

async fn printed(code: &str) -> Vec<String> {
    let outcome = run(code).await;
    outcome.console().lines().map(|line| format!("{} {}", line.level.name(), line.text)).collect()
}

#[tokio::test]
async fn structure_is_printed() {
    let code = r#"
        console.log('a', 1, -0, 5n, true, null, undefined, NaN, -Infinity);
        console.info({ a: 1, b: ['x', { c: 'd"' }], e() {}, [Symbol('s')]: 1, get g() { throw 1 } });
        console.warn([1, , 3], [], {}, new Date(0), new Error('boom'), new TypeError('t'), /x/, new Map());
        console.error(read, Promise.resolve(), (() => { const o = {}; o.o = o; return o })(), Symbol('x'));
        console.debug({ a: { b: { c: { d: { e: 1 } } } } });
        console.log();
        console.log('%s', 'no formats');
        console.dir({ a: 1 });
        console.log('\ud800', new (class A { x = 1 })())"#;
    assert_eq!(
        printed(code).await,
        [
            "log a 1 -0 5n true null undefined NaN -Infinity",
            r#"info {a: 1, b: ["x", {c: "d\""}], e: [function], g: [accessor], [symbol]: 1}"#,
            "warn [1, 3] [] {} 1970-01-01T00:00:00.000Z Error: boom TypeError: t [object] [object]",
            "error [function] [promise] {o: [cycle]} Symbol()",
            "debug {a: {b: {c: {d: {…}}}}}",
            "log ",
            "log %s no formats",
            "log {a: 1}",
            "log \u{fffd}\u{fffd}\u{fffd} {x: 1}",
        ]
    );
}

// W50: lines before an error, a limit and a rejection are returned.
#[tokio::test]
async fn lines_survive_the_end() {
    for end in ["null.x", "while (true) {}", "await del({})", "await new Promise(() => {})", "return () => 1"]
    {
        let outcome =
            run_limited(&format!("console.log('before'); {end}"), |limits| limits.polls = 100).await;
        let lines: Vec<&str> = outcome.console().lines().map(|line| line.text.as_str()).collect();
        assert_eq!(lines, ["before"], "{end}: {}", summary(&outcome));
    }
}

// Law 9: 64 KiB, head and tail, omitted bytes counted; one value is cut too.
#[tokio::test]
async fn the_console_is_bounded() {
    let outcome = run("for (let i = 0; i < 5000; i++) console.log(String(i).padStart(99, '.'))").await;
    let console = outcome.console();
    let kept: usize = console.lines().map(|line| line.text.len() + 1).sum();
    assert!(kept <= 64 << 10 && kept > 60 << 10, "{kept}");
    assert_eq!(kept + console.omitted_bytes(), 5_000 * 100);
    assert!(console.lines().next().unwrap().text.ends_with(".0"));
    assert!(console.lines().last().unwrap().text.ends_with(".4999"));
    assert_eq!(console.head().len(), 327);

    let outcome = run("console.log('x'.repeat(100000)); console.log({ a: 'y'.repeat(100000) }); console.log(new Array(1000).fill(7))").await;
    let many = run("console.log(...new Array(20000).fill('x'.repeat(16000)))").await;
    assert!(many.console().omitted_bytes() < 200_000, "{}", many.console().omitted_bytes());
    for line in outcome.console().lines() {
        assert!(line.text.len() < 33_000 && line.text.contains("…"), "{} bytes", line.text.len());
    }
}
