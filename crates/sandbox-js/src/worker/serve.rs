//! The worker's side: one machine at a time, fed from standard input.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use super::confine;
use super::wire::{
    self, CHUNK, Calls, End, FromWorker, How, MAX_TO_WORKER, NoMessage, Ready, Rest, Start, ToWorker,
};
use crate::console::Console;
use crate::engine::{self, Machine, MachineOptions, NewCall, NotStarted, Step};
use crate::pool::STACK;

pub(super) fn main() -> ExitCode {
    // The thread that programs run on; no other can be made afterwards.
    let engine = thread::Builder::new().stack_size(STACK).spawn(|| {
        let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
        // Whatever is made once in a process is made while that is still allowed.
        match engine::warm_up().and_then(|()| confine::confine()) {
            Ok(()) => serve(&mut from, &mut to),
            Err(why) => say(&mut to, &FromWorker::Failed(why)),
        }
    });
    let served = engine.map(|engine| engine.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))));
    match served {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) | Err(_) => ExitCode::FAILURE,
    }
}

/// Runs programs until the input ends.
fn serve(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let refused = confine::refused();
    let ready = || Ready { build: super::build(), refused: refused.clone() };
    say(to, &FromWorker::Ready(ready()))?;
    let mut machine: Option<Machine> = None;
    loop {
        let message = match wire::receive(from, MAX_TO_WORKER) {
            Ok(message) => message,
            Err(NoMessage::Closed) => return Ok(()),
            Err(NoMessage::Nonsense(why)) => return Err(io::Error::other(why)),
        };
        let goes_on = match (message, machine.as_mut()) {
            (ToWorker::Start(start), None) => match begin(*start) {
                Ok((begun, step)) => answer(to, machine.insert(begun), step)?,
                Err(how) => end(to, how, Console::default(), None)?,
            },
            (ToWorker::Settle(settlement), Some(machine)) => {
                let step = machine.settle(*settlement);
                answer(to, machine, step)?
            }
            (ToWorker::Stop, Some(_)) => false,
            _ => return Err(io::Error::other("a message out of order")),
        };
        if !goes_on {
            // Taken apart before the next program may come: if this kills the worker, it kills no other run.
            machine = None;
            say(to, &FromWorker::Ready(ready()))?;
        }
    }
}

fn begin(start: Start) -> Result<(Machine, Step), How> {
    let Start { text, functions, limits, seed, clock } = start;
    let program = engine::compile(&text, limits.stack).map_err(How::NotCompiled)?;
    let options = MachineOptions { functions, limits, seed, clock, abandoned: Arc::default() };
    let mut machine = Machine::new(options).map_err(|why| match why {
        NotStarted::Stopped(stop) => How::Stopped(stop),
        NotStarted::Failed(why) => How::NoEngine(why),
    })?;
    let step = machine.start(&program);
    Ok((machine, step))
}

/// Says what a step came to. Answers whether the program waits.
fn answer(to: &mut impl Write, machine: &mut Machine, step: Step) -> io::Result<bool> {
    let mut chunk: Vec<NewCall> = Vec::new();
    let mut bytes = 0;
    for call in machine.take_calls() {
        bytes += call.input.text().len();
        chunk.push(call);
        if bytes > CHUNK {
            say(to, &FromWorker::Calls(Calls { calls: std::mem::take(&mut chunk), rest: None }))?;
            bytes = 0;
        }
    }
    let console = machine.take_console();
    let goes_on = matches!(step, Step::Idle);
    if goes_on {
        let rest = Rest { console: console.into(), spent: machine.spent() };
        say(to, &FromWorker::Calls(Calls { calls: chunk, rest: Some(rest) }))?;
        return Ok(true);
    }
    if !chunk.is_empty() {
        say(to, &FromWorker::Calls(Calls { calls: chunk, rest: None }))?;
    }
    end(to, How::Step(step), console, Some(machine))
}

fn say(to: &mut impl Write, message: &FromWorker) -> io::Result<()> {
    // What the host does not take is its own affair.
    wire::send(to, message, u32::MAX as usize).map_err(io::Error::other)
}

fn end(to: &mut impl Write, how: How, console: Console, machine: Option<&Machine>) -> io::Result<bool> {
    let spent = machine.map(Machine::spent).unwrap_or_default();
    let rest = Rest { console: console.into(), spent };
    say(to, &FromWorker::End(Box::new(End { how, rest })))?;
    Ok(false)
}
