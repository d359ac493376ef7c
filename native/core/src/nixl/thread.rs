//! The thread that owns an agent: jobs come through a channel, answers go through callbacks on that
//! thread.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use super::agent::{Agent, AgentSpec};
use super::api::NixlApi;
use super::spec::{Answer, RegistrationSpec, TransferSpec};
use super::state::{State, panicked};
use super::wait::Wait;
use crate::error::{Error, Result};

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
                    serve(&mut state, &received);
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
            Some(state) if !state.closing() => match catch_unwind(AssertUnwindSafe(|| work(state))) {
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
            state.register(number, spec)?;
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
            state.create_transfer(number, spec)?;
            Ok(number)
        });
    }

    /// Starts a transfer. `done` is called once, at its end, failure or abort; `settled` once, when
    /// nothing of it is in flight any more.
    pub fn post(&self, number: u64, done: Answer<()>, settled: Box<dyn FnOnce() + Send>) {
        let job = Job::new(move |state| match state {
            Some(state) if !state.closing() => state.post(number, done, settled),
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
            if let Some(state) = state {
                state.abort(number);
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
            Some(state) if !state.closing() => state.begin_close(Some(answer)),
            _ => answer(Err(closed())),
        });
        self.hand_over(job);
    }
}

fn closed() -> Error {
    Error::new("ERR_NIXL_CLOSED", "the agent is closed")
}

/// Works until the agent is closed and nothing is in flight.
fn serve(state: &mut State, jobs: &Receiver<Job>) {
    let mut wait = Wait::new();
    while !state.closing() || state.in_flight() {
        let received = if state.closing() {
            jobs_while_closing(jobs, wait.next())
        } else if !state.in_flight() {
            let job = jobs.recv().map_err(|_| RecvTimeoutError::Disconnected);
            wait = Wait::new();
            job
        } else {
            next_job(jobs, wait.next())
        };
        match received {
            Ok(job) => job.run(state),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if !state.closing() {
                    state.begin_close(None);
                }
            }
        }
        if state.look() {
            wait = Wait::new();
        }
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
