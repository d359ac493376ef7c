//! What an agent's thread holds: the agent, its registrations and transfers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::agent::{Agent, Progress};
use super::list::{Kind, List, describe};
use super::spec::{Answer, RegistrationSpec, TransferSpec};
use super::transfer::{Keeps, Stage, Transfer};
use crate::error::{Error, Result};

pub(super) fn panicked() -> Error {
    Error::new("ERR_INTERNAL", "the agent's thread panicked: what is registered with it stays held")
}

fn unknown(what: &str, number: u64) -> Error {
    Error::new("ERR_INTERNAL", format!("the agent has no {what} number {number}"))
}

struct Registered {
    plugin: usize,
    list: List,
    keep: Keeps,
}

pub(super) type Closing = Option<Answer<()>>;

pub(super) struct State {
    pub agent: Agent,
    registrations: BTreeMap<u64, Registered>,
    transfers: BTreeMap<u64, Transfer>,
    /// A transfer is stranded: new ones would meet its remains.
    broken: bool,
    closing: Option<Closing>,
}

impl State {
    pub fn new(agent: Agent) -> Self {
        State { agent, registrations: BTreeMap::new(), transfers: BTreeMap::new(), broken: false, closing: None }
    }

    pub fn closing(&self) -> bool {
        self.closing.is_some()
    }

    pub fn register(&mut self, number: u64, spec: RegistrationSpec) -> Result<()> {
        let keep = Keeps(spec.keep);
        let list = self.agent.register(spec.plugin, spec.kind, &spec.descriptors)?;
        self.registrations.insert(number, Registered { plugin: spec.plugin, list, keep });
        Ok(())
    }

    pub fn abort(&mut self, number: u64) {
        if let Some(transfer) = self.transfers.get_mut(&number) {
            transfer.abort();
        }
    }

    /// After a panic nothing is known of what NIXL does: whoever waits is answered, and nothing is
    /// given back.
    pub fn abandon(&mut self) {
        let waiting = self.transfers.values_mut().filter_map(|transfer| transfer.done.take());
        for answer in waiting.chain(self.closing.take().flatten()) {
            // One answer that panics must not cost the others theirs.
            let _ = catch_unwind(AssertUnwindSafe(|| answer(Err(panicked()))));
        }
    }

    pub fn end(mut self) {
        let answer = self.closing.take().flatten();
        let outcome = self.tear_down();
        if let Some(answer) = answer {
            answer(outcome);
        }
    }

    pub fn in_flight(&self) -> bool {
        self.transfers.values().any(|transfer| matches!(transfer.stage, Stage::InFlight))
    }

    /// Asks after everything in flight; true when something ended.
    pub fn look(&mut self) -> bool {
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

    pub fn create_transfer(&mut self, number: u64, spec: TransferSpec) -> Result<()> {
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
        let transfer =
            Transfer { plugin: spec.plugin, request, stage: Stage::Made, registrations, keep, done: None, settled: None, what, facts };
        self.transfers.insert(number, transfer);
        Ok(())
    }

    pub fn post(&mut self, number: u64, done: Answer<()>, settled: Box<dyn FnOnce() + Send>) {
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

    pub fn release(&mut self, number: u64) -> Result<()> {
        let transfer = self.transfers.get_mut(&number).ok_or_else(|| unknown("transfer", number))?;
        if matches!(transfer.stage, Stage::InFlight | Stage::Stranded) {
            return Err(transfer.told(Error::new("ERR_NIXL_BUSY", "a transfer in flight cannot be released")));
        }
        self.agent.release(&mut transfer.request)?;
        self.transfers.remove(&number);
        Ok(())
    }

    pub fn deregister(&mut self, number: u64) -> Result<()> {
        let registered = self.registrations.get(&number).ok_or_else(|| unknown("registration", number))?;
        if let Some(user) = self.transfers.values().find(|transfer| transfer.registrations.contains(&number)) {
            return Err(user.told(Error::new("ERR_NIXL_BUSY", "a registration is used by a transfer that is not released")));
        }
        self.agent.deregister(registered.plugin, &registered.list)?;
        self.registrations.remove(&number);
        Ok(())
    }

    pub fn begin_close(&mut self, answer: Closing) {
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
