//! The configuration of probes: one or more files of YAML.
//!
//! ```text
//! Source ──tree──► Node ──reader──► Config ──jobs(TargetSource)──► Vec<Job> ──► Scheduler::apply
//!                                     └── modules and endpoint ──► /probe
//! ```
//!
//! `modules` is that of blackbox_exporter; `probes` says which module probes which targets, how
//! often. Every problem names the file, the line and the path of its key, and what to do.

pub(crate) mod files;
mod http;
mod module;
mod probes;
pub(crate) mod reader;
mod steps;
pub(crate) mod tree;
mod variables;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use reader::{Reader, Section};
use tree::Node;

pub use files::Source;
pub(crate) use module::CompiledModule;
pub use probes::{DiscoveredTarget, NoTargets, TargetSource};
pub use variables::Variables;

use crate::builtin;
use crate::context::AddressRange;
use crate::endpoint::TargetPattern;
use crate::error::{ConfigError, Problem, Problems};
use crate::module::Module;
use crate::probe::ProbeInfo;

/// Maximum number of modules in all files.
pub const MAX_MODULES: usize = 500;
/// Maximum number of probes in all files.
pub const MAX_PROBES: usize = 500;
/// Maximum number of targets of a probe, also of those that are discovered.
pub const MAX_TARGETS: usize = 1_000;
/// Maximum number of targets of all probes together.
pub const MAX_JOBS: usize = 10_000;

/// A valid configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    modules: BTreeMap<Arc<str>, CompiledModule>,
    /// Compiled when the first of them is asked for.
    builtins: OnceLock<BTreeMap<Arc<str>, CompiledModule>>,
    variables: Variables,
    probes: Vec<ConfiguredProbe>,
    allow_targets: Vec<TargetPattern>,
    denied_addresses: Vec<AddressRange>,
    unavailable: Vec<Unavailable>,
    /// Whether a file says which built-in probes run.
    chooses_builtins: bool,
}

/// A probe and what it probes.
#[derive(Debug, Clone)]
pub(crate) struct ConfiguredProbe {
    pub(crate) info: Arc<ProbeInfo>,
    pub(crate) module: Arc<Module>,
    pub(crate) targets: Vec<crate::Target>,
    /// The name of a source of more targets.
    pub(crate) targets_from: Option<Arc<str>>,
}

/// A built-in probe that cannot run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub probe: &'static str,
    /// The variable that is not set.
    pub variable: String,
}

impl Config {
    /// Reads one text.
    pub fn parse(text: &str, variables: &Variables) -> Result<Self, ConfigError> {
        let source = Source {
            name: None,
            text: text.to_owned(),
        };
        Self::from_sources(&[source], variables)
    }

    /// Reads several texts as one configuration: names of modules and probes are unique in all of
    /// them, and a probe may use a module of another text.
    pub fn from_sources(sources: &[Source], variables: &Variables) -> Result<Self, ConfigError> {
        let mut problems = Problems::default();
        let mut documents = Vec::new();
        for source in sources {
            match tree::parse(&source.text) {
                Ok(node) => documents.push((Reader::new(source.name.as_deref()), node)),
                Err(text) => problems.push(Problem {
                    file: source.name.clone(),
                    line: 1,
                    path: String::new(),
                    text,
                }),
            }
        }
        let config = Self::read(&documents, variables);
        for (reader, _) in documents {
            problems.append(reader.into_problems());
        }
        problems.into_result()?;
        Ok(config)
    }

    fn read(documents: &[(Reader, Node)], variables: &Variables) -> Self {
        let mut config = Self {
            variables: variables.clone(),
            ..Self::default()
        };
        let roots: Vec<Section<'_>> = documents
            .iter()
            .filter_map(|(reader, node)| reader.root(node).section())
            .collect();
        // All modules first: a probe may use one of a later file.
        for root in &roots {
            read_modules(root, variables, &mut config.modules);
        }
        for root in &roots {
            probes::read(root, variables, &mut config);
            if let Some(endpoint) = root.section("endpoint") {
                for item in module::list(&endpoint, "allow_targets") {
                    let Some(text) = item.text() else { continue };
                    match text.parse() {
                        Ok(pattern) => config.allow_targets.push(pattern),
                        Err(problem) => item.report(problem),
                    }
                }
                endpoint.finish();
            }
            for item in module::list(root, "denied_addresses") {
                let Some(text) = item.text() else { continue };
                match text.parse() {
                    Ok(range) => config.denied_addresses.push(range),
                    Err(problem) => item.report(problem),
                }
            }
        }
        for root in roots {
            root.finish();
        }
        config
    }

    /// A module by its name.
    pub fn module(&self, name: &str) -> Option<&Arc<Module>> {
        self.compiled(name).map(|compiled| &compiled.module)
    }

    /// The names of all modules, built-in ones included.
    pub fn module_names(&self) -> Vec<&str> {
        let own = self.modules.keys().map(|name| &**name);
        let mut names: Vec<&str> = own.collect();
        for name in builtin::module_names() {
            names.push(name);
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The probes that are configured.
    pub fn probes(&self) -> impl Iterator<Item = &Arc<ProbeInfo>> {
        self.probes.iter().map(|probe| &probe.info)
    }

    /// The built-in probes that were asked for and cannot run here.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Whether the configuration has `builtin_probes`. If not, the role chooses.
    pub fn chooses_builtins(&self) -> bool {
        self.chooses_builtins
    }

    /// What `/probe` may probe, besides the targets of probes.
    pub(crate) fn allow_targets(&self) -> &[TargetPattern] {
        &self.allow_targets
    }

    /// Addresses that no probe may connect to.
    pub fn denied_addresses(&self) -> &[AddressRange] {
        &self.denied_addresses
    }

    pub(crate) fn configured_probes(&self) -> &[ConfiguredProbe] {
        &self.probes
    }

    pub(crate) fn compiled(&self, name: &str) -> Option<&CompiledModule> {
        self.modules.get(name).or_else(|| {
            builtin::module_names().find(|known| *known == name)?;
            let builtins = self
                .builtins
                .get_or_init(|| builtin::modules(&self.variables));
            builtins.get(name)
        })
    }
}

fn read_modules(
    root: &Section<'_>,
    variables: &Variables,
    own: &mut BTreeMap<Arc<str>, CompiledModule>,
) {
    let Some(modules) = root.item("modules") else {
        return;
    };
    for (name, item) in modules.entries() {
        if own.len() >= MAX_MODULES {
            item.report(format!("there are more than {MAX_MODULES} modules"));
            return;
        }
        if name.is_empty() || name.len() > 128 || name.contains(char::is_control) {
            item.report("a name has 1 to 128 bytes, without control characters; rename it");
            continue;
        }
        let Some(compiled) = module::module(&item, variables) else {
            continue;
        };
        if own.insert(name.into(), compiled).is_some() {
            item.report("a module in another file has this name; rename one of them");
        }
    }
}

/// Compiles the modules of a document. Without variables that is the check of one that is foreign.
pub(crate) fn compile_modules(
    node: &Node,
    variables: &Variables,
) -> Result<BTreeMap<Arc<str>, CompiledModule>, Problems> {
    let reader = Reader::new(None);
    let mut modules = BTreeMap::new();
    if let Some(root) = reader.root(node).section() {
        read_modules(&root, variables, &mut modules);
    }
    let problems = reader.into_problems();
    if problems.is_empty() {
        Ok(modules)
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests;
