//! Programs that try to hang, crash, escape or go on after their end (laws 1 and 9; scenarios W14, W40, W42).
//!
//! In this process the sandbox cannot stop every native of the engine; what it cannot stop it refuses beforehand or, as a
//! last resort, gives up the thread. The table says how each ends.

use std::time::Duration;

use countersign_sandbox_js::{Backend, Config, Ending, Limits, RunOptions, RunOutcome, Sandbox};

use super::harness::{Log, SANDBOX, config, functions, options, origin, summary};

/// How a program may end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    /// `LimitExceeded` of this name.
    Limit(&'static str),
    /// An ending of this kind.
    Kind(&'static str),
    /// It completes.
    Fine,
}
use Ends::{Fine, Kind, Limit};

const COMPUTE: Ends = Limit("compute");
const MEMORY: Ends = Limit("memory");
const STACK: Ends = Limit("stack");
const THROWN: Ends = Kind("Thrown");

/// Single operations that take long enough for a busy machine to give up on them.
const SLOW: &[&str] =
    &["2n **", "toSorted", "Float64Array", "repeat(1e7)", "JSON.parse(s)", "RegExp", "(x+x+)", "a * a"];

const TABLE: &[(&[Ends], &str)] = &[
    // Loops in every place that could shield them from the interrupt.
    (&[COMPUTE], "while (true) {}"),
    (&[COMPUTE], "try { while (true) {} } catch { console.log('AFTER'), await read('AFTER') }"),
    (&[COMPUTE], "try { while (true) {} } finally { console.log('AFTER'), await read('AFTER') }"),
    (&[COMPUTE], "[3, 1, 2].sort(() => { while (true) {} })"),
    (&[COMPUTE], "JSON.stringify({ toJSON() { while (true) {} } })"),
    (&[COMPUTE], "JSON.parse('[1]', () => { while (true) {} })"),
    (&[COMPUTE], "await { get then() { while (true) {} } }"),
    (&[COMPUTE], "await { then() { while (true) {} } }"),
    (&[COMPUTE], "await Promise.resolve().then(() => { while (true) {} })"),
    (
        &[COMPUTE],
        "for (const x of { [Symbol.iterator]: () => ({ next: () => ({ value: 1 }), return() { while (true) {} } }) }) break",
    ),
    (&[COMPUTE], "for await (const x of (async function* () { while (true) yield 1 })()) {}"),
    (&[COMPUTE], "class A { static { while (true) {} } }"),
    (&[COMPUTE], "'aaa'.replace(/a/g, () => { while (true) {} })"),
    (&[COMPUTE], "`${{ toString() { while (true) {} } }}`"),
    (&[COMPUTE], "Array.from({ length: 3 }, () => { while (true) {} })"),
    (&[COMPUTE], "new Map(function* () { while (true) yield [1, 2] }())"),
    (&[COMPUTE], "const f = (x) => { while (true) {} }; f`x`"),
    (&[COMPUTE], "let x = { get a() { while (true) {} } }; ({ ...x })"),
    (&[COMPUTE], "label: for (;;) { continue label }"),
    (&[COMPUTE], "for (let d = Date.now(); ; ) { Date.now() }"),
    (&[COMPUTE], "for (;;) Math.random()"),
    (&[COMPUTE], "for (;;) console.log('x')"),
    // Jobs without end.
    (&[COMPUTE], "while (true) await null"),
    (
        &[COMPUTE, MEMORY],
        "const f = () => { queueMicrotask(f); queueMicrotask(f) }; f(); await new Promise(() => {})",
    ),
    (&[COMPUTE, MEMORY], "const f = () => Promise.resolve().then(f); await f()"),
    (&[COMPUTE, MEMORY], "let p = Promise.resolve(); for (;;) p = p.then(() => {})"),
    // Where the engine swallows an uncatchable error (W14).
    (&[COMPUTE], "while (true) new Promise(() => { while (true) {} })"),
    (&[COMPUTE], "new Promise(() => { while (true) {} }); console.log('AFTER'), await read('AFTER')"),
    (&[COMPUTE], "Promise.try(() => { while (true) {} }); console.log('AFTER'), await read('AFTER')"),
    (&[COMPUTE], "await Promise.resolve({ get then() { while (true) {} } }).catch(() => read('AFTER'))"),
    (
        &[COMPUTE],
        "try { await { then(r) { while (true) {} } } } catch { console.log('AFTER'), await read('AFTER') }",
    ),
    (
        &[COMPUTE],
        "try { await Promise.all({ [Symbol.iterator]() { while (true) {} } }) } catch { console.log('AFTER'), await read('AFTER') }",
    ),
    (
        &[COMPUTE],
        "try { Array.from({ [Symbol.iterator]: () => ({ next() { throw 1 }, return() { while (true) {} } }) }) } catch {} while (true) {}",
    ),
    (
        &[COMPUTE],
        "{ using a = { [Symbol.dispose]() { while (true) {} } }; using b = { [Symbol.dispose]() { while (true) {} } } } console.log('AFTER'), await read('AFTER')",
    ),
    (&[COMPUTE], "Error.prepareStackTrace = () => { while (true) {} }; for (;;) new Error('x').stack"),
    (
        &[COMPUTE],
        "(async () => { await null; for (;;) {} })(); await null; await null; console.log('AFTER'); read('AFTER')",
    ),
    (
        &[COMPUTE],
        "new Promise(() => { for (;;) {} }); console.log('AFTER'); del('AFTER'); read('AFTER'); return 1",
    ),
    // Regular expressions.
    (&[COMPUTE], "/(a+)+$/.test('a'.repeat(40) + 'b')"),
    (&[COMPUTE], "/.*.*=.*/.test('x'.repeat(200000))"),
    (&[COMPUTE, THROWN], "for (let i = 0; ; i++) /(x+x+)+y/.test('x'.repeat(30))"),
    (&[THROWN, MEMORY, COMPUTE], "new RegExp('(?='.repeat(100000) + ')'.repeat(100000))"),
    (&[THROWN, MEMORY, COMPUTE, Fine], "new RegExp('((a{1000}){1000}){1000}').test('a')"),
    (&[THROWN, MEMORY, COMPUTE, Fine], "new RegExp('a|'.repeat(100000))"),
    // Stack.
    (&[STACK], "const f = () => f() + 1; f()"),
    (&[STACK], "class A { get a() { return this.a } } new A().a"),
    (&[STACK], "const o = { toString() { return `${o}` } }; `${o}`"),
    (&[STACK, THROWN], "let a = []; for (let i = 0; i < 100000; i++) a = [a]; String(a)"),
    (&[STACK, THROWN], "let a = []; for (let i = 0; i < 100000; i++) a = [a]; JSON.stringify(a)"),
    (&[STACK, THROWN], "let a = []; for (let i = 0; i < 100000; i++) a = [a]; a.flat(Infinity)"),
    (&[STACK, THROWN], "JSON.parse('['.repeat(200000))"),
    (&[Fine], "let a = []; for (let i = 0; i < 100000; i++) a = [a]; a = null"),
    (
        &[Fine, STACK, MEMORY],
        "let f = () => 1; for (let i = 0; i < 100000; i++) f = f.bind(null); try { f() } catch {}",
    ),
    (&[Fine], "let a = null; for (let i = 0; i < 100000; i++) a = { a }; console.log(a)"),
    (&[Fine], "const f = () => { try { f() } catch { return 1 } }; f()"),
    // Memory (W42).
    (&[MEMORY], "const a = []; while (true) a.push(new Array(1000).fill(1))"),
    (&[MEMORY, THROWN], "let s = 'x'; while (true) s += s"),
    (&[MEMORY, THROWN], "'x'.repeat(2 ** 29)"),
    (&[MEMORY, COMPUTE], "const m = new Map(); for (let i = 0; ; i++) m.set(i, i)"),
    (&[MEMORY, COMPUTE], "const o = {}; for (let i = 0; ; i++) o['k' + i] = i"),
    (&[MEMORY], "const a = []; while (true) a.push(Symbol())"),
    (
        &[MEMORY],
        "const a = []; while (true) { try { a.push('x'.repeat(10000) + a.length) } catch { console.log('AFTER'), await read('AFTER') } }",
    ),
    (
        &[MEMORY],
        "try { const a = []; while (true) a.push(new Uint8Array(100000)) } catch { await del('AFTER') }",
    ),
    (
        &[MEMORY],
        "try { const a = []; while (true) a.push(a.map(x => x)) } catch (e) { if (e === null) await del('AFTER') } finally { console.log('AFTER'), await read('AFTER') }",
    ),
    (&[MEMORY, THROWN], "new ArrayBuffer(2 ** 32)"),
    (&[MEMORY, THROWN], "new Uint8Array(2 ** 31)"),
    (&[MEMORY, THROWN], "new ArrayBuffer(8, { maxByteLength: 2 ** 40 })"),
    (&[MEMORY, THROWN], "Array.from({ length: 2 ** 32 })"),
    (&[MEMORY, COMPUTE], "[...function* () { while (true) yield 1 }()]"),
    (&[MEMORY, THROWN, COMPUTE], "(2n ** 100000n) ** 1000n"),
    (&[MEMORY, THROWN, COMPUTE], "2n ** 100000000n"),
    (&[MEMORY, THROWN, COMPUTE], "let a = 1n; while (true) a = a * a + 1n"),
    (&[MEMORY, THROWN], "Math.max(...new Array(1000000))"),
    (&[MEMORY, THROWN], "'x'.padStart(2 ** 29)"),
    (&[MEMORY, THROWN], "JSON.stringify('x'.repeat(2 ** 24)).repeat(8)"),
    (&[MEMORY, THROWN], "new Array(2 ** 24).fill('x').join('y'.repeat(100))"),
    // Natives that never look at the interrupt.
    (&[THROWN], "new Array(2 ** 32 - 1).join()"),
    (&[THROWN], "new Array(1e9) + ''"),
    (&[THROWN], "`${new Array(1e9)}`"),
    (&[THROWN], "new Array(2 ** 32 - 1).reverse()"),
    (&[THROWN], "new Array(2 ** 32 - 1).sort()"),
    (&[THROWN], "new Array(2 ** 32 - 1).copyWithin(0, 1)"),
    (&[THROWN], "new Array(2 ** 32 - 1).shift()"),
    (&[THROWN], "new Array(2 ** 32 - 1).unshift(1)"),
    (&[THROWN], "new Array(2 ** 32 - 1).splice(0, 1)"),
    (&[THROWN], "new Array(2 ** 32 - 1).slice()"),
    (&[THROWN], "new Array(2 ** 32 - 1).flat()"),
    (&[THROWN], "new Array(2 ** 32 - 1).toSorted()"),
    (&[THROWN], "new Array(2 ** 32 - 1).toLocaleString()"),
    (&[THROWN], "[].concat({ length: 2 ** 53 - 1, [Symbol.isConcatSpreadable]: true })"),
    (&[THROWN], "Array.prototype.join.call({ length: 2 ** 53 - 1 })"),
    (&[THROWN], "Array.prototype.reverse.call({ get length() { return 2 ** 53 - 1 } })"),
    (&[THROWN], "Array.prototype.slice.call({ length: { valueOf() { return 2 ** 53 - 1 } } })"),
    (&[THROWN], "Array.prototype.splice.call(Object.create({ length: 2 ** 53 - 1 }), 0, 1)"),
    (
        &[THROWN],
        "const a = []; [].concat({ get [Symbol.isConcatSpreadable]() { a.length = 2 ** 32 - 1; return false } }, a)",
    ),
    (&[THROWN], "String.raw({ raw: { length: 2 ** 53 - 1 } })"),
    (
        &[THROWN],
        "Object.prototype.value = 1; Array.prototype.join.call({ get length() { return 2 ** 53 - 1 } })",
    ),
    (
        &[Kind("ApprovalRejected")],
        "Object.prototype.get = () => 1; Object.prototype.set = () => 1; await del({})",
    ),
    (&[THROWN], "String.raw({ raw: { get length() { return 2 ** 53 - 1 } } })"),
    (&[THROWN], "const s = 'a'.repeat(5e6); s.indexOf('a'.repeat(2e6) + 'b')"),
    (&[THROWN], "const s = 'a'.repeat(5e6); s.split('a'.repeat(2e6) + 'b')"),
    (&[THROWN], "const s = 'a'.repeat(5e6); s.replaceAll({ toString: () => 'a'.repeat(2e6) + 'b' }, '')"),
    (&[THROWN], "const s = 'a'.repeat(5e6); s.lastIndexOf('b' + 'a'.repeat(2e6))"),
    (&[THROWN], "('a' + '\\u0301\\u0323'.repeat(200000)).normalize('NFC')"),
    (&[THROWN], "('a' + '\\u0301\\u0323'.repeat(200000)).localeCompare('b')"),
    (&[COMPUTE], "const s = 'a'.repeat(1e7); for (;;) s.indexOf('b')"),
    (&[COMPUTE, MEMORY], "const s = 'a'.repeat(1e7); for (;;) s.toUpperCase()"),
    (&[COMPUTE, MEMORY], "const a = new Float64Array(500000).map((x, i) => -i); for (;;) a.toSorted()"),
    (&[COMPUTE], "const a = new Float64Array(500000); for (;;) a.map(x => x)"),
    (&[COMPUTE, MEMORY], "const s = '[' + '1,'.repeat(300000) + '1]'; for (;;) JSON.parse(s)"),
    (&[THROWN], "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)"),
    (&[COMPUTE], "Array.prototype.forEach.call({ length: 2 ** 53 - 1 }, () => {})"),
    (&[COMPUTE], "Array.prototype.includes.call(new Uint8Array(1), 5, -1); for (;;) {}"),
    (&[COMPUTE, MEMORY, THROWN], "const b = 2n ** 200000n; for (;;) (b * b) / (b + 1n)"),
    (
        &[COMPUTE],
        "const a = [], b = [0]; Object.defineProperty(b, 0, { get() { a.length = 2 ** 32 - 1; return 1 } }); for (;;) try { [].concat(b, a) } catch {}",
    ),
    (
        &[THROWN],
        "const a = [], b = [0]; Object.defineProperty(b, 0, { get() { a.length = 2 ** 32 - 1; return 1 } }); [].concat(b, a)",
    ),
    (&[COMPUTE], "const a = new Uint8Array(5e6); for (;;) a.indexOf(2)"),
    (&[COMPUTE], "const a = new Uint8Array(5e6); for (;;) a.reverse()"),
    (&[COMPUTE], "const a = new Uint8Array(5e6); for (;;) { a.fill(1); a.set(a); a.copyWithin(0, 1) }"),
    (&[COMPUTE], "const b = new ArrayBuffer(0, { maxByteLength: 5e6 }); for (;;) { b.resize(0); b.resize(5e6) }"),
    // Our own natives: what is looked at is bounded, not only what is printed or passed.
    (
        &[Fine],
        "const o = {}; for (let i = 0; i < 3000; i++) Object.defineProperty(o, 'k' + i, { value: 1 }); console.log(Array(90).fill(Array(90).fill(o)), ...Array(5000).fill(o))",
    ),
    (
        &[THROWN],
        "const o = {}; for (let i = 0; i < 3000; i++) o['k' + i] = undefined; await read(Array(30000).fill(o))",
    ),
    // Escapes.
    (&[THROWN], "new Function('return 1')()"),
    (&[THROWN], "(() => {}).constructor('return 1')()"),
    (&[THROWN], "(async () => {}).constructor('return 1')()"),
    (&[THROWN], "(function* () {}).constructor('return 1')()"),
    (&[THROWN], "(async function* () {}).constructor('return 1')()"),
    (&[THROWN], "Reflect.construct(Function, ['return 1'])"),
    (&[THROWN], "class F extends Function {} new F('return 1')"),
    (&[THROWN], "globalThis['ev' + 'al']('1')"),
    (&[Kind("UnknownFunction")], "eval('1')"),
    (&[Kind("UnknownFunction")], "require('fs')"),
    (&[Kind("UnknownFunction")], "setTimeout(() => {}, 1)"),
    (&[Kind("UnknownFunction")], "fetch('https://example.org')"),
    (&[Kind("UnknownFunction")], "process.exit(1)"),
    (&[Kind("Syntax")], "import('fs')"),
    (&[Kind("Syntax")], "import x from 'fs'"),
    (&[Kind("Syntax")], "export const x = 1"),
    (&[Kind("Syntax")], "import.meta.url"),
    (&[Kind("Syntax")], "})(); (async () => {"),
    (&[Kind("Syntax")], "}\n\n//"),
    (&[Kind("Syntax")], "with ({}) {}"),
    (&[Kind("Syntax")], "x <!-- y"),
    (&[Kind("Syntax")], "x\n--> y"),
    (&[Kind("Syntax")], "return `"),
    (&[Kind("Syntax")], "\u{0}"),
    (&[THROWN], "del = () => {}"),
    (&[THROWN], "delete globalThis.del; globalThis.del = 1"),
    (&[THROWN], "Object.defineProperty(globalThis, 'read', { value: 1 })"),
    (&[THROWN], "console.log = 1"),
    (&[THROWN], "ApprovalRejected.prototype.name = 'x'"),
    (
        &[Limit("calls")],
        "Object.defineProperty(Object.prototype, 'then', { get() { read({ b: 1 }) } }); await read({ a: 1 })",
    ),
    (
        &[COMPUTE],
        "Object.defineProperty(Object.prototype, 'then', { get() { for (;;) {} } }); await read({ a: 1 })",
    ),
    (
        &[COMPUTE],
        "Object.defineProperty(Promise.prototype, 'constructor', { get() { for (;;) {} } }); await read({ a: 1 })",
    ),
    (
        &[THROWN],
        "Object.defineProperty(Object.prototype, 'then', { get() { throw new Error('x') } }); await read({ a: 1 })",
    ),
    (
        &[Fine, THROWN],
        "globalThis.Promise = class {}; globalThis.Error = null; globalThis.WeakMap = null; await read({})",
    ),
    (&[Fine], "await Promise.all(Array.from({ length: 999 }, (_, i) => read({ i })))"),
    (&[Fine], "Object.prototype.then = undefined; await read({})"),
    (
        &[Fine],
        "Array.prototype[Symbol.iterator] = null; Array.prototype.push = null; await read({}); console.log(1)",
    ),
    (
        &[Fine],
        "Promise.prototype.then = null; Reflect.apply = null; Function.prototype.call = null; console.log(new Date().toString())",
    ),
    (
        &[Fine],
        "Object.defineProperty(Object.prototype, 'value', { get() { throw 1 }, configurable: true }); await read({})",
    ),
];

// Running out of memory anywhere is what could crash the engine: every amount of it, in small steps, above what a world
// takes. `SANDBOX_STRESS=1` takes smaller steps.
#[tokio::test]
async fn memory_runs_out_anywhere() {
    let programs = [
        "const seen = {}; for (let i = 0; i < 50; i++) { const r = await read({ i, t: 'x'.repeat(i) }); seen[r.i] = [...r.t] } return seen",
        "class A { #x = new Map([[1, { a: /b/g }]]); get x() { return this.#x } } const all = []; for (let i = 0; i < 200; i++) all.push(new A().x); return all.length",
        "const f = async (n) => n ? { n, next: await f(n - 1) } : null; console.log(await f(30)); await Promise.all([1, 2, 3].map((id) => del({ id }).catch((e) => e)))",
        "let s = ''; for (let i = 0; i < 500; i++) s += String(i ** 2).padStart(9).replace(/ /g, '_'); return JSON.parse(JSON.stringify({ s })).s.split('_').sort().length",
        "const g = function* () { for (let i = 0n; i < 300n; i++) yield i * i }; return [...g()].map(String).flat().concat(new Date().toString())",
    ];
    let step = if std::env::var_os("SANDBOX_STRESS").is_some() { 509 } else { 16_381 };
    let sandbox = Sandbox::new(Config { threads: 2, ..config() }).unwrap();
    for code in programs {
        let (mut ran_out, mut fitted) = (0, 0);
        for memory in (60_000..900_000).step_by(step) {
            let mut options = options(code, &Log::default());
            options.limits.memory = memory;
            match ends(&sandbox.run(options).await.unwrap()) {
                MEMORY => ran_out += 1,
                Fine => fitted += 1,
                other => panic!("{memory}: {other:?}: {code}"),
            }
        }
        assert!(ran_out > 0 && fitted > 0, "{ran_out} ran out, {fitted} fitted: {code}");
    }
}

// Sources that nest without end. The parser is recursive and must neither overflow nor take long.
#[tokio::test]
async fn nesting_does_not_overflow_the_parser() {
    let mut wrong = Vec::new();
    for (unit, tail) in [
        ("(", ""),
        ("[", ""),
        ("{", ""),
        ("!", "1"),
        ("-", "1"),
        ("~", "1"),
        ("- ", "1"),
        ("typeof ", "1"),
        ("void ", "1"),
        ("await ", "1"),
        ("new ", "x"),
        ("a=>", "1"),
        ("a=", "1"),
        ("a?", "1"),
        ("a?1:", "1"),
        ("a**", "1"),
        ("a+", "1"),
        ("a,", "1"),
        ("a||", "1"),
        ("a??", "1"),
        ("a.b", ""),
        ("a()", ""),
        ("if(1)", ";"),
        ("if(1);else ", ";"),
        ("for(;;)", ";"),
        ("while(1)", ";"),
        ("do ", ";"),
        ("a:", ";"),
        ("try{}catch{", ""),
        ("function f(){", ""),
        ("class A{a=", ""),
        ("class A extends ", ""),
        ("`${", ""),
        ("...", ""),
        ("[...", ""),
        ("async()=>", "1"),
        ("\")\",(", ""),
        ("(')',", ""),
        ("let x:A<", ""),
        ("A<", ""),
        ("<A>", "x"),
        ("x as ", "A"),
        ("let x:(", ""),
        ("let a:[", ""),
        ("let a:{b:", ""),
        ("type A=B extends C?D:", "E"),
        ("let x: keyof ", "A"),
        ("switch(1){case ", ""),
        ("/*", ""),
        ("yield ", ""),
        ("({a:", ""),
        ("@a ", ""),
    ] {
        let count = 250_000 / unit.len();
        let mut options = RunOptions::new(format!("{}{tail}", unit.repeat(count)), Vec::new());
        options.limits = small();
        let began = std::time::Instant::now();
        let outcome = SANDBOX.run(options).await.unwrap();
        let took = began.elapsed();
        if std::env::var("HOSTILE_SHOW").is_ok() {
            eprintln!("{took:?} {unit} => {}", summary(&outcome));
        }
        if ends(&outcome) == Kind("WorkerLost") {
            wrong.push(format!("{unit}: {}", summary(&outcome)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// What takes the engine's compiler long, or much memory, is refused: it can be neither interrupted nor limited.
#[tokio::test]
async fn what_is_slow_to_compile_is_refused() {
    let fields = |count: usize| (0..count).map(|i| format!("#a{i};")).collect::<String>();
    for (code, expected) in [
        (format!("return /{}/u.test('a')", "\\p{L}".repeat(500)), "completed false"),
        (format!("return /{}/u.test('a')", "\\p{L}".repeat(501)), "Syntax: more than 500 times \\p"),
        (format!("/{0}/u; /{0}/u", "\\P{L}".repeat(251)), "Syntax: more than 500 times \\p"),
        (format!("class A {{ {} }}", fields(4_999)), "completed null"),
        (format!("class A {{ {} }}", fields(5_000)), "Syntax: more than 5000 names"),
    ] {
        let outcome = SANDBOX.run(RunOptions::new(code, Vec::new())).await.unwrap();
        assert!(summary(&outcome).starts_with(expected), "{}", summary(&outcome));
    }
}

// A native that cannot be interrupted (W40): the run ends all the same, and others get another thread.
#[tokio::test]
async fn a_stuck_thread_is_given_up() {
    let sandbox = Sandbox::new(Config { threads: 1, ..config() }).unwrap();
    let code = "const a = 'a'.repeat(6e6) + 'b', b = 'a'.repeat(6e6) + 'c'; for (;;) a === b";
    let mut options = RunOptions::new(code, Vec::new());
    options.limits = small();
    let stuck = sandbox.run(options).await.unwrap();
    assert_eq!(ends(&stuck), COMPUTE);
    let what = match config().backend {
        Backend::InProcess => "its thread was given up",
        _ => "its worker was killed",
    };
    assert!(summary(&stuck).ends_with(what), "{}", summary(&stuck));
    assert_eq!(summary(&sandbox.run(RunOptions::new("return 1", Vec::new())).await.unwrap()), "completed 1");
}

fn small() -> Limits {
    Limits {
        compute: Duration::from_millis(400),
        polls: 1_000,
        memory: 16 << 20,
        stack: 512 << 10,
        ..Limits::default()
    }
}

fn ends(outcome: &RunOutcome) -> Ends {
    match outcome {
        RunOutcome::Completed(_) => Fine,
        RunOutcome::Failed(failed) => match &failed.ending {
            Ending::LimitExceeded(bound) => Limit(bound.name()),
            ending => Kind(ending.kind()),
        },
        other => panic!("{other:?}"),
    }
}

// Law 9: each ends with its typed error or is refused beforehand; the process survives; nothing marked ran; no call was
// made after the end; the next run works.
#[tokio::test]
async fn each_ends_as_it_should() {
    let sandbox = Sandbox::new(Config { threads: 2, ..config() }).unwrap();
    let mut wrong = Vec::new();
    for (expected, code) in TABLE {
        let log = Log::default();
        let mut options = options(code, &log);
        options.limits = small();
        if expected.first() != Some(&COMPUTE) {
            // How fast this machine is must not decide.
            options.limits.compute = Duration::from_secs(30);
        }
        let began = std::time::Instant::now();
        let outcome = sandbox.run(options).await.unwrap();
        let took = began.elapsed();
        if std::env::var("HOSTILE_SHOW").is_ok() {
            eprintln!("{took:?} {code} => {}", summary(&outcome));
        }
        let ended = ends(&outcome);
        // Calls and lines that a program made before its end are its right; those marked AFTER come later.
        let after_end = outcome.report().iter().any(|row| row.input.text().contains("AFTER"))
            || outcome.console().lines().any(|line| line.text.contains("AFTER"));
        let is_slow = SLOW.iter().any(|native| code.contains(native));
        let given_up = !is_slow && summary(&outcome).contains("could not be interrupted");
        if !expected.contains(&ended)
            || after_end
            || given_up
            || log.all().iter().any(|line| line.starts_with("del"))
        {
            wrong.push(format!("{code}\n    {} {:?} in {took:?}", summary(&outcome), log.all()));
        }
        let next = sandbox.run(RunOptions {
            origin: origin(),
            ..RunOptions::new("return await read({ a: 1 })", functions(&log))
        });
        assert_eq!(summary(&next.await.unwrap()), r#"completed {"a":1}"#, "after {code}");
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), TABLE.len(), wrong.join("\n"));
}
