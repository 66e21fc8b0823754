//! Mode `deny` (collect-semantics section 10).

use crate::harness::{rows, run, summary};

#[tokio::test]
async fn smoke() {
    for code in ["return new Error('x').stack", "return JSON.stringify(Object.getOwnPropertyDescriptor(new Error('x'),'stack'))+'|'+JSON.stringify(Object.getOwnPropertyDescriptor(Error.prototype,'stack'))",
    "try {\n /*é*/ undefinedname() } catch (e) { return e.stack }", "function ff(){ throw new Error('é😀') }\n const s='é😀'; try { ff() } catch (e) { return e.stack }",
    "try { await del(1) } catch (e) { return [e.stack, e.name, JSON.stringify(e), e instanceof ApprovalRejected, e instanceof Error, String(e)] }",
    "try { null.x } catch (e) { return e.stack }",  "return Object.getOwnPropertyNames(globalThis)"] {
        let outcome = run(code).await;
        eprintln!("{code:60} => {} {:?} {:?}", summary(&outcome), rows(&outcome), outcome.console().lines().collect::<Vec<_>>());
    }
}
#[tokio::test]
async fn smoke2() {
    for code in ["await del({})", "\n  foo({a:1})", "x.y", "/*é😀*/ tools.deleteFile({})", "throw new Error('x')", "let a = 1;\nlet b = ;", "return [\n1,,", "\n\n'use strict'; with (a) {}", "await fail({a:1})", "const f = () => read(1, 2);\nawait f()", "try { await fail(1) } catch (e) { throw new Error('w', {cause: e}) }","let x; {{ let x; \n let x; }}", "await Promise.all([\n read(1),\n  del(2)])", "return await (async () => { throw 5 })()", "del(1); return 5", "function a() { b() }\nfunction b() { return a() }\na()", "let a, a","for (const x of 5) {}", "const f = 1;\nf()", "break"] {
        let outcome = run(code).await;
        eprintln!("{code:60} => {} {:?} {:?}", summary(&outcome), rows(&outcome), outcome.report().iter().map(|r| r.position).collect::<Vec<_>>());
    }
}
