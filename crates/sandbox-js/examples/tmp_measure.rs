//! temporary
use countersign_sandbox_js::*;
use std::time::{Duration, Instant};
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let worker = std::env::args().nth(1).unwrap();
    for (name, backend) in
        [("in-process", Backend::InProcess), ("worker", Backend::Worker(WorkerCommand::new(worker)))]
    {
        let sandbox =
            Sandbox::new(Config { backend, threads: 2, evict_after: Duration::ZERO, ..Config::default() })
                .unwrap();
        let functions = vec![
            Function::new("read", |input: Json, _| async move { Ok(Output::from(input)) }),
            Function::new("del", |_, _| async move { Ok(Output::null()) }).requires_approval(),
        ];
        let run = |code: &str| {
            let o = RunOptions::new(code, functions.clone());
            let s = sandbox.clone();
            async move { s.run(o).await.unwrap() }
        };
        run("return 1").await;
        let median = |mut v: Vec<Duration>| {
            v.sort();
            v[v.len() / 2]
        };
        let mut t = vec![];
        for _ in 0..200 {
            let b = Instant::now();
            run("return 1").await;
            t.push(b.elapsed());
        }
        println!("{name}: trivial {:?}", median(t));
        let mut t = vec![];
        for _ in 0..20 {
            let b = Instant::now();
            run("for (let i = 0; i < 999; i++) await read({ i })").await;
            t.push(b.elapsed());
        }
        println!("{name}: 999 calls {:?}", median(t));
        let mut t = vec![];
        for _ in 0..10 {
            let when = std::sync::Arc::new(std::sync::Mutex::new(Instant::now()));
            let w = when.clone();
            let mut o = RunOptions::new(
                "for (let i = 0; i < 998; i++) await read({ i }); await del({})",
                functions.clone(),
            );
            o.approval = Approval::pause(move |_| {
                let w = w.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    *w.lock().unwrap() = Instant::now();
                    Ok(Answer::Approve)
                }
            });
            sandbox.run(o).await.unwrap();
            t.push(when.lock().unwrap().elapsed());
        }
        println!("{name}: answer to end after 998 calls {:?}", median(t));
        let mut t = vec![];
        for _ in 0..10 {
            let when = std::sync::Arc::new(std::sync::Mutex::new(Instant::now()));
            let w = when.clone();
            let mut o = RunOptions::new(
                "for (let i = 0; i < 3; i++) await read({ i }); await del({})",
                functions.clone(),
            );
            o.approval = Approval::pause(move |_| {
                let w = w.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    *w.lock().unwrap() = Instant::now();
                    Ok(Answer::Approve)
                }
            });
            sandbox.run(o).await.unwrap();
            t.push(when.lock().unwrap().elapsed());
        }
        println!("{name}: answer to end after 3 calls {:?}", median(t));
    }
}
