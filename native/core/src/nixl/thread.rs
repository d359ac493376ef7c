//! The thread that owns an agent: jobs come through a channel, answers go through callbacks on that
//! thread.

use std::any::Any;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use super::agent::{Agent, AgentSpec, Progress, Request};
use super::api::NixlApi;
use super::list::{Descriptor, Kind, List, describe};
use super::wait::Wait;
use crate::error::{Error, Result};

/// Something that has to live as long as NIXL may touch it: a pin of an arena, an open file.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// Called once with the answer, on the agent's thread.
pub type Answer<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// What to register.
pub struct RegistrationSpec {
    /// Row of the plugin in the agent's specification.
    pub plugin: usize,
    pub kind: Kind,
    pub descriptors: Vec<Descriptor>,
    /// Held until the registration is undone.
    pub keep: Vec<Keep>,
}

/// One side of a transfer.
pub struct Side {
    pub kind: Kind,
    pub descriptors: Vec<Descriptor>,
}

/// What to move.
pub struct TransferSpec {
    pub plugin: usize,
    pub write: bool,
    pub local: Side,
    pub remote: Side,
    /// Agent of the remote side; None for this one.
    pub agent: Option<String>,
    /// Registrations that cover both sides: none of them is undone before the transfer is released.
    pub registrations: Vec<u64>,
    /// File of the remote side, for errors.
    pub file: Option<String>,
}

/// An agent and its thread. Dropped unclosed it ends on its own, once nothing is in flight.
pub struct AgentThread {
    jobs: Sender<Job>,
    numbers: AtomicU64,
}

type Work = Box<dyn FnOnce(Option<&mut State>) + Send>;

/// Work for the agent's thread, told None when the agent has ended: at the latest when the job is
/// dropped.
struct Job(Option<Work>);

impl Job {
    fn new(work: impl FnOnce(Option<&mut State>) + Send + 'static) -> Self {
        Job(Some(Box::new(work)))
    }

    fn run(mut self, state: &mut State) {
        if let Some(work) = self.0.take() {
            work(Some(state));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work(None);
        }
    }
}

impl AgentThread {
    /// Makes the agent on its new thread; the answer lists the plugins that NIXL finds.
    /// ERR_NIXL_AGENT, ERR_NIXL_PLUGIN
    pub fn start(api: Arc<NixlApi>, spec: AgentSpec, answer: Answer<Vec<String>>) -> Result<Self> {
        let (jobs, received) = channel();
        let run = move || match catch_unwind(AssertUnwindSafe(|| Agent::create(api, spec))).unwrap_or_else(|_| Err(panicked())) {
            Ok((agent, plugins)) => {
                // NIXL may use what the state holds until the state itself has given it back: a
                // panic must not.
                let mut state = ManuallyDrop::new(State::new(agent));
                let served = catch_unwind(AssertUnwindSafe(|| {
                    answer(Ok(plugins));
                    state.serve(&received);
                }));
                match served {
                    Ok(()) => ManuallyDrop::into_inner(state).end(),
                    Err(_) => state.abandon(),
                }
            }
            Err(error) => answer(Err(error)),
        };
        let started = std::thread::Builder::new().name("mx-nixl".to_owned()).spawn(run);
        started
            .map_err(|error| Error::new("ERR_NIXL_AGENT", "an agent's thread could not be started").caused_by("pthread_create", &error))?;
        Ok(AgentThread { jobs, numbers: AtomicU64::new(1) })
    }

    fn send<T: 'static>(&self, answer: Answer<T>, work: impl FnOnce(&mut State) -> Result<T> + Send + 'static) {
        let job = Job::new(move |state| match state {
            Some(state) if state.closing.is_none() => match catch_unwind(AssertUnwindSafe(|| work(state))) {
                Ok(outcome) => answer(outcome),
                Err(panic) => {
                    answer(Err(panicked()));
                    resume_unwind(panic);
                }
            },
            _ => answer(Err(closed())),
        });
        self.hand_over(job);
    }

    fn hand_over(&self, job: Job) {
        // What an agent that has ended does not take answers as it is dropped.
        drop(self.jobs.send(job));
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Answers the number of the registration.
    pub fn register(&self, spec: RegistrationSpec, answer: Answer<u64>) {
        let number = self.number();
        self.send(answer, move |state| {
            let keep = Keeps(spec.keep);
            let list = state.agent.register(spec.plugin, spec.kind, &spec.descriptors)?;
            state.registrations.insert(number, Registered { plugin: spec.plugin, list, keep });
            Ok(number)
        });
    }

    /// ERR_NIXL_BUSY while a transfer that uses it is not released. When NIXL refuses, what is
    /// registered stays held, and `close` tries again.
    pub fn deregister(&self, number: u64, answer: Answer<()>) {
        self.send(answer, move |state| state.deregister(number));
    }

    /// Answers the number of the transfer, which is not posted yet.
    pub fn create_transfer(&self, spec: TransferSpec, answer: Answer<u64>) {
        let number = self.number();
        self.send(answer, move |state| {
            let transfer = state.create_transfer(spec)?;
            state.transfers.insert(number, transfer);
            Ok(number)
        });
    }

    /// Starts a transfer. `done` is called once, at its end, failure or abort; `settled` once, when
    /// nothing of it is in flight any more.
    pub fn post(&self, number: u64, done: Answer<()>, settled: Box<dyn FnOnce() + Send>) {
        let job = Job::new(move |state| match state {
            Some(state) if state.closing.is_none() => state.post(number, done, settled),
            _ => {
                done(Err(closed()));
                settled();
            }
        });
        self.hand_over(job);
    }

    /// `done` of a transfer in flight comes now. NIXL cannot cancel: `settled` comes when what is
    /// in flight has ended.
    pub fn abort(&self, number: u64) {
        let job = Job::new(move |state| {
            if let Some(transfer) = state.and_then(|state| state.transfers.get_mut(&number)) {
                transfer.abort();
            }
        });
        self.hand_over(job);
    }

    /// Gives a transfer back that is not in flight; else ERR_NIXL_BUSY. When NIXL refuses, `close`
    /// tries again.
    pub fn release_transfer(&self, number: u64, answer: Answer<()>) {
        self.send(answer, move |state| state.release(number));
    }

    pub fn metadata(&self, answer: Answer<Vec<u8>>) {
        self.send(answer, |state| state.agent.metadata());
    }

    /// Answers the other agent's name.
    pub fn load_remote(&self, metadata: Vec<u8>, answer: Answer<String>) {
        self.send(answer, move |state| state.agent.load_remote(&metadata));
    }

    pub fn forget_remote(&self, name: String, answer: Answer<()>) {
        self.send(answer, move |state| state.agent.forget_remote(&name));
    }

    /// Aborts what is in flight, waits for its end, releases transfers, undoes registrations in
    /// reverse, ends plugins and agent. The answer is the first error. Where a transfer or
    /// registration cannot be given back the agent is left open, for NIXL may abort the process.
    pub fn close(&self, answer: Answer<()>) {
        let job = Job::new(move |state| match state {
            Some(state) if state.closing.is_none() => state.begin_close(Some(answer)),
            _ => answer(Err(closed())),
        });
        self.hand_over(job);
    }
}

fn closed() -> Error {
    Error::new("ERR_NIXL_CLOSED", "the agent is closed")
}

fn panicked() -> Error {
    Error::new("ERR_INTERNAL", "the agent's thread panicked: what is registered with it stays held")
}

/// What NIXL may touch; held for good when a panic drops it, which says nothing of NIXL.
#[derive(Default)]
struct Keeps(Vec<Keep>);

impl Drop for Keeps {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(std::mem::take(&mut self.0));
        }
    }
}

fn unknown(what: &str, number: u64) -> Error {
    Error::new("ERR_INTERNAL", format!("the agent has no {what} number {number}"))
}

struct Registered {
    plugin: usize,
    list: List,
    keep: Keeps,
}

enum Stage {
    /// Not posted yet.
    Made,
    InFlight,
    /// Failed in a plugin that may still be moving other pieces.
    Stranded,
    Over,
}

struct Transfer {
    plugin: usize,
    request: Request,
    stage: Stage,
    registrations: Vec<u64>,
    /// Copies of what its registrations hold.
    keep: Keeps,
    done: Option<Answer<()>>,
    settled: Option<Box<dyn FnOnce() + Send>>,
    /// What it moves, for errors.
    what: String,
    facts: Vec<(&'static str, crate::error::Fact)>,
}

impl Transfer {
    fn abort(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(self.told(Error::new("ERR_TRANSFER_ABORTED", "the transfer was aborted"))));
        }
    }

    fn told(&self, mut error: Error) -> Error {
        error.message = format!("{} ({})", error.message, self.what);
        error.facts.extend(self.facts.iter().cloned());
        error
    }

    fn finish(&mut self, outcome: Result<()>, strands: bool) {
        let failed = outcome.is_err();
        if let Some(done) = self.done.take() {
            done(outcome.map_err(|error| self.told(error)));
        }
        if failed && strands {
            self.stage = Stage::Stranded;
        } else {
            self.stage = Stage::Over;
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.keep.0.clear();
        if let Some(settled) = self.settled.take() {
            settled();
        }
    }
}

type Closing = Option<Answer<()>>;

struct State {
    agent: Agent,
    registrations: BTreeMap<u64, Registered>,
    transfers: BTreeMap<u64, Transfer>,
    /// A transfer is stranded: new ones would meet its remains.
    broken: bool,
    closing: Option<Closing>,
}

impl State {
    fn new(agent: Agent) -> Self {
        State { agent, registrations: BTreeMap::new(), transfers: BTreeMap::new(), broken: false, closing: None }
    }

    /// Works until the agent is closed and nothing is in flight.
    fn serve(&mut self, jobs: &Receiver<Job>) {
        let mut wait = Wait::new();
        while self.closing.is_none() || self.in_flight() {
            let received = if self.closing.is_some() {
                jobs_while_closing(jobs, wait.next())
            } else if !self.in_flight() {
                let job = jobs.recv().map_err(|_| RecvTimeoutError::Disconnected);
                wait = Wait::new();
                job
            } else {
                next_job(jobs, wait.next())
            };
            match received {
                Ok(job) => job.run(self),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    if self.closing.is_none() {
                        self.begin_close(None);
                    }
                }
            }
            if self.look() {
                wait = Wait::new();
            }
        }
    }

    /// After a panic nothing is known of what NIXL does: whoever waits is answered, and nothing is
    /// given back.
    fn abandon(&mut self) {
        let waiting = self.transfers.values_mut().filter_map(|transfer| transfer.done.take());
        for answer in waiting.chain(self.closing.take().flatten()) {
            // One answer that panics must not cost the others theirs.
            let _ = catch_unwind(AssertUnwindSafe(|| answer(Err(panicked()))));
        }
    }

    fn end(mut self) {
        let answer = self.closing.take().flatten();
        let outcome = self.tear_down();
        if let Some(answer) = answer {
            answer(outcome);
        }
    }

    fn in_flight(&self) -> bool {
        self.transfers.values().any(|transfer| matches!(transfer.stage, Stage::InFlight))
    }

    /// Asks after everything in flight; true when something ended.
    fn look(&mut self) -> bool {
        let mut ended = false;
        for transfer in self.transfers.values_mut().filter(|transfer| matches!(transfer.stage, Stage::InFlight)) {
            let strands = self.agent.plugin(transfer.plugin).is_ok_and(|plugin| plugin.strands);
            match self.agent.progress(transfer.plugin, &transfer.request) {
                Ok(Progress::InFlight) => continue,
                Ok(Progress::Done) => transfer.finish(Ok(()), strands),
                Err(error) => {
                    self.broken |= strands;
                    transfer.finish(Err(error), strands);
                }
            }
            ended = true;
        }
        ended
    }

    fn create_transfer(&mut self, spec: TransferSpec) -> Result<Transfer> {
        self.refuse_broken()?;
        let mut keep = Keeps::default();
        for number in &spec.registrations {
            let registered = self.registrations.get(number).ok_or_else(|| unknown("registration", *number))?;
            keep.0.extend(registered.keep.0.iter().cloned());
        }
        let plugin = self.agent.plugin(spec.plugin)?.name.clone();
        let what = format!(
            "{} of {} {} {}",
            if spec.write { "write" } else { "read" },
            describe(spec.remote.kind, &spec.remote.descriptors),
            if spec.write { "from" } else { "into" },
            describe(spec.local.kind, &spec.local.descriptors)
        );
        let begin = spec.remote.descriptors.iter().map(|piece| piece.address).min().unwrap_or(0);
        let end = spec.remote.descriptors.iter().map(|piece| piece.address.saturating_add(piece.length)).max().unwrap_or(0);
        let mut facts = vec![("plugin", plugin.into())];
        if let Some(file) = spec.file {
            facts.push(("file", file.into()));
        }
        if spec.remote.kind == Kind::File {
            facts.extend([("offset", begin.into()), ("length", (end - begin).into())]);
        }
        if let Some(agent) = &spec.agent {
            facts.push(("remoteAgent", agent.as_str().into()));
        }
        let told = |mut error: Error| {
            error.message = format!("{} ({what})", error.message);
            error.facts.extend(facts.iter().cloned());
            error
        };
        let api = self.agent.api();
        let local = List::transfer(api, spec.local.kind, &spec.local.descriptors).map_err(told)?;
        let remote = List::transfer(api, spec.remote.kind, &spec.remote.descriptors).map_err(told)?;
        let request = self.agent.create_request(spec.plugin, spec.write, &local, &remote, spec.agent.as_deref()).map_err(told)?;
        let registrations = spec.registrations;
        Ok(Transfer { plugin: spec.plugin, request, stage: Stage::Made, registrations, keep, done: None, settled: None, what, facts })
    }

    fn post(&mut self, number: u64, done: Answer<()>, settled: Box<dyn FnOnce() + Send>) {
        let refused = match self.transfers.get(&number) {
            None => Some(unknown("transfer", number)),
            Some(Transfer { stage: Stage::Made, .. }) => self.refuse_broken().err(),
            Some(_) => Some(Error::new("ERR_NIXL_BUSY", "a transfer is posted once")),
        };
        if let Some(error) = refused {
            done(Err(error));
            settled();
            return;
        }
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        transfer.done = Some(done);
        transfer.settled = Some(settled);
        let strands = self.agent.plugin(transfer.plugin).is_ok_and(|plugin| plugin.strands);
        match self.agent.post(transfer.plugin, &transfer.request) {
            Ok(Progress::InFlight) => transfer.stage = Stage::InFlight,
            Ok(Progress::Done) => transfer.finish(Ok(()), strands),
            Err(error) => {
                self.broken |= strands;
                transfer.finish(Err(error), strands);
            }
        }
    }

    fn refuse_broken(&self) -> Result<()> {
        if !self.broken {
            return Ok(());
        }
        let message =
            "a transfer of this agent failed and left reads behind that only the end of the agent ends: close it, and make a new one";
        Err(Error::new("ERR_NIXL_BROKEN", message))
    }

    fn release(&mut self, number: u64) -> Result<()> {
        let transfer = self.transfers.get_mut(&number).ok_or_else(|| unknown("transfer", number))?;
        if matches!(transfer.stage, Stage::InFlight | Stage::Stranded) {
            return Err(transfer.told(Error::new("ERR_NIXL_BUSY", "a transfer in flight cannot be released")));
        }
        self.agent.release(&mut transfer.request)?;
        self.transfers.remove(&number);
        Ok(())
    }

    fn deregister(&mut self, number: u64) -> Result<()> {
        let registered = self.registrations.get(&number).ok_or_else(|| unknown("registration", number))?;
        if let Some(user) = self.transfers.values().find(|transfer| transfer.registrations.contains(&number)) {
            return Err(user.told(Error::new("ERR_NIXL_BUSY", "a registration is used by a transfer that is not released")));
        }
        self.agent.deregister(registered.plugin, &registered.list)?;
        self.registrations.remove(&number);
        Ok(())
    }

    fn begin_close(&mut self, answer: Closing) {
        self.closing = Some(answer);
        for transfer in self.transfers.values_mut() {
            transfer.abort();
        }
    }

    fn tear_down(mut self) -> Result<()> {
        let mut first = None;
        let mut stranded = Vec::new();
        while let Some((_, mut transfer)) = self.transfers.pop_last() {
            if let Some(settled) = transfer.settled.take() {
                stranded.push((settled, std::mem::take(&mut transfer.keep)));
            }
            first = first.or(self.agent.release(&mut transfer.request).err());
        }
        let mut left = Vec::new();
        while let Some((_, registered)) = self.registrations.pop_last() {
            match self.agent.deregister(registered.plugin, &registered.list) {
                Ok(()) => drop(registered),
                Err(error) => {
                    first = first.or(Some(error));
                    left.push(registered);
                }
            }
        }
        if let Some(error) = first {
            // What NIXL still holds must outlive it: the agent, and everything registered with it
            // or read into by it.
            std::mem::forget((left, stranded));
            return Err(error);
        }
        let outcome = self.agent.destroy();
        for (settled, keep) in stranded {
            drop(keep);
            settled();
        }
        outcome
    }
}

fn next_job(jobs: &Receiver<Job>, wait: Duration) -> std::result::Result<Job, RecvTimeoutError> {
    if !wait.is_zero() {
        return jobs.recv_timeout(wait);
    }
    jobs.try_recv().map_err(|error| match error {
        TryRecvError::Empty => RecvTimeoutError::Timeout,
        TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
    })
}

/// As [`next_job`]; a channel without senders answers at once, and must not make the wait a spin.
fn jobs_while_closing(jobs: &Receiver<Job>, wait: Duration) -> std::result::Result<Job, RecvTimeoutError> {
    let received = next_job(jobs, wait);
    if matches!(received, Err(RecvTimeoutError::Disconnected)) {
        std::thread::sleep(wait);
        return Err(RecvTimeoutError::Timeout);
    }
    received
}
