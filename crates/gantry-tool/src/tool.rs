//! `Tool` is a named function with two schemas, made from its types. Only the gate can run it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::{Call, Ctx, Principal, Surface};
use crate::error::{ToolError, Violation};
use crate::policy::Implied;

pub(crate) mod asked;
pub(crate) mod attributes;
mod capability;
pub(crate) mod convert;
pub(crate) mod crossing;
mod described;
pub(crate) mod effect;
mod label;
pub(crate) mod locations;
pub(crate) mod published_schema;
mod reply;
pub(crate) mod schema;
mod toolset;
mod touch;

pub use asked::AskedCall;
use asked::Describe;
use attributes::Attributes;
pub use capability::Capability;
use convert::convert;
use crossing::Crosses;
pub use crossing::Crossing;
use described::{plain_schema, plain_text};
use effect::Effect;
pub use label::Label;
use locations::Locations;
pub use reply::{IntoReply, Reply, Text};
pub use toolset::Toolset;
pub(crate) use touch::Unjudged;
pub use touch::{Access, Touch};

type RunFuture = Pin<Box<dyn Future<Output = Result<Reply, ToolError>> + Send>>;
type Run = Arc<dyn Fn(Arc<Call>, Value) -> RunFuture + Send + Sync>;
type AboutCall = Arc<dyn Fn(&Call) -> bool + Send + Sync>;
type Implies = Arc<dyn Fn(&Value) -> Result<Vec<Implied>, Violation> + Send + Sync>;
type Touches = Arc<dyn Fn(&Call, &Value) -> Result<Vec<Touch>, Violation> + Send + Sync>;

/// The descriptions and schemas of a tool.
struct Schemas {
    description: String,
    /// Details for people. No model reads them.
    notes: String,
    input: Value,
    output: Option<Value>,
}

type MakeSchemas = Box<dyn FnOnce() -> Schemas + Send>;

impl Schemas {
    fn of<I: JsonSchema, O: IntoReply>() -> Schemas {
        let schema::InputSchema { description, notes, schema } = schema::of_input::<I>();
        Schemas { description, notes, input: schema, output: O::schema() }
    }
}

/// The description of a tool that runs elsewhere.
#[derive(Debug, Clone)]
pub struct RemoteTool {
    pub name: String,
    pub toolset: Toolset,
    pub description: String,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
    pub capabilities: Vec<Capability>,
}

/// A tool with its description and declarations. Callers cannot reach `run`.
#[derive(Clone)]
pub struct Tool {
    name: String,
    toolset: Toolset,
    /// Made on first use, because a single call needs the schema of one tool only.
    schemas: Arc<LazyLock<Schemas, MakeSchemas>>,
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    open_world: bool,
    paged: bool,
    capabilities: Arc<[Capability]>,
    effects: Option<Arc<[Effect]>>,
    pub(crate) attributes: Attributes,
    labels: &'static [Label],
    validator: Arc<OnceLock<schema::Validator>>,
    definition: Arc<OnceLock<blake3::Hash>>,
    remote: bool,
    pub(crate) touches: Option<Touches>,
    walked: Option<Touches>,
    implies: Option<Implies>,
    pub(crate) locations: Option<Locations>,
    pub(crate) describe: Option<Describe>,
    pub(crate) crosses: Option<Crosses>,
    /// The field of the input that names the path that a call writes.
    pub(crate) written_field: Option<&'static str>,
    /// Whether a call cannot reach the network, or only through a proxy that judges its connections.
    offline: Option<AboutCall>,
    /// Whether the machine finds out which files a call's command changed.
    watches_changes: Option<AboutCall>,
    run: Run,
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .field("toolset", &self.toolset)
            .finish_non_exhaustive()
    }
}

impl Tool {
    /// Makes a tool from its function. Description and schemas come from the types.
    ///
    /// A new tool counts as one that changes things, unless [`Tool::read_only`] is set.
    pub fn new<S, I, O, F, Fut>(name: &str, toolset: Toolset, state: &Arc<S>, run: F) -> Tool
    where
        S: Send + Sync + 'static,
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: IntoReply,
        F: Fn(Ctx<S>, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
    {
        let state = state.clone();
        let run = Arc::new(run);
        let erased: Run = Arc::new(move |call, input| {
            let (state, run) = (state.clone(), run.clone());
            Box::pin(async move {
                let input: I = convert(input).map_err(ToolError::violation)?;
                let output = run(Ctx { call, state }, input).await?;
                output
                    .into_reply()
                    .map_err(|err| ToolError::internal(format!("cannot serialise the output: {err}")))
            })
        });
        Tool {
            name: name.to_owned(),
            toolset,
            schemas: Arc::new(LazyLock::new(Box::new(Schemas::of::<I, O>))),
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: false,
            paged: false,
            capabilities: Arc::default(),
            effects: None,
            attributes: Attributes::default(),
            labels: &[],
            validator: Arc::default(),
            definition: Arc::default(),
            remote: false,
            touches: None,
            walked: None,
            implies: None,
            locations: None,
            crosses: None,
            written_field: None,
            describe: None,
            offline: None,
            watches_changes: None,
            run: erased,
        }
    }

    /// Makes a tool that runs elsewhere and is known by its description only. Its answers are not checked. Its descriptions
    /// are sanitized, so that they cannot control a terminal or hide text in a prompt.
    pub fn remote<F, Fut>(remote: RemoteTool, run: F) -> Tool
    where
        F: Fn(Arc<Call>, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, ToolError>> + Send + 'static,
    {
        let RemoteTool { name, toolset, description, input_schema, output_schema, .. } = remote;
        let schemas = Schemas {
            description: plain_text(&description),
            notes: String::new(),
            input: plain_schema(input_schema),
            output: output_schema.map(plain_schema),
        };
        Tool {
            name,
            toolset,
            schemas: Arc::new(LazyLock::new(Box::new(move || schemas))),
            read_only: remote.read_only,
            destructive: remote.destructive,
            idempotent: remote.idempotent,
            open_world: remote.open_world,
            paged: false,
            capabilities: remote.capabilities.into(),
            effects: None,
            attributes: Attributes::default(),
            labels: &[Label::Untrusted, Label::Private],
            validator: Arc::default(),
            definition: Arc::default(),
            remote: true,
            touches: None,
            walked: None,
            implies: None,
            locations: None,
            crosses: None,
            written_field: None,
            describe: None,
            offline: None,
            watches_changes: None,
            run: Arc::new(move |call, input| Box::pin(run(call, input))),
        }
    }

    /// The tool changes nothing. It may be repeated, and its audit line need not be on disk before it runs.
    pub fn read_only(mut self) -> Self {
        (self.read_only, self.destructive, self.idempotent) = (true, false, true);
        self
    }

    /// The tool only adds. It changes and removes nothing that exists.
    pub fn additive(mut self) -> Self {
        self.destructive = false;
        self
    }

    /// Calling the tool twice with the same input has the same effect as calling it once.
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// The tool can reach beyond this machine: [`Effect::ReachesNetwork`].
    pub fn open_world(mut self) -> Self {
        self.open_world = true;
        self
    }

    /// Declares which calls do not reach the network by themselves: their commands have no sockets, or every connection is
    /// judged. A command whose connections are judged adds `untrusted` to its findings when it connects.
    pub fn offline_when(mut self, offline: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        self.offline = Some(Arc::new(offline));
        self
    }

    /// Declares the calls for which the machine finds out which files their commands changed. The files of other commands
    /// are unknown, so their whole workspace counts as changed.
    pub fn watches_changes_when(mut self, watches: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        self.watches_changes = Some(Arc::new(watches));
        self
    }

    pub fn capabilities(mut self, capabilities: &[Capability]) -> Self {
        self.capabilities = capabilities.into();
        self
    }

    /// Declares all effects of the tool, if they do not follow from its capabilities.
    pub fn effects(mut self, effects: &[Effect]) -> Self {
        self.open_world |= effects.contains(&Effect::ReachesNetwork);
        self.effects = Some(effects.into());
        self
    }

    /// Labels that every result of this tool carries.
    pub fn labels(mut self, labels: &'static [Label]) -> Self {
        self.labels = labels;
        self
    }

    /// Declares which paths a call will touch, so that policy can decide before it runs.
    ///
    /// `I` may be a smaller type than the tool's input. Fields that it does not have are ignored.
    pub fn touches<I, F>(mut self, touches: F) -> Self
    where
        I: DeserializeOwned,
        F: Fn(&Call, I) -> Vec<Touch> + Send + Sync + 'static,
    {
        self.touches = Some(Arc::new(move |call, input| Ok(touches(call, convert(input)?))));
        self
    }

    /// Declares which other calls a call implies. The call may do no more than they may.
    pub fn implies<I, F>(mut self, implies: F) -> Self
    where
        I: DeserializeOwned,
        F: Fn(I) -> Vec<Implied> + Send + Sync + 'static,
    {
        self.implies = Some(Arc::new(move |input| {
            let input = convert(input)?;
            Ok(implies(input))
        }));
        self
    }

    /// Declares further paths below those of [`Tool::touches`], which only a walk over a tree finds. The gate runs the walk
    /// off the async threads.
    pub fn touches_by_walking<I, F>(mut self, walk: F) -> Self
    where
        I: DeserializeOwned,
        F: Fn(&Call, I) -> Vec<Touch> + Send + Sync + 'static,
    {
        self.walked = Some(Arc::new(move |call, input| Ok(walk(call, convert(input)?))));
        self
    }

    /// The tool returns pages, so its results are never shortened or kept.
    pub fn paged(mut self) -> Self {
        self.paged = true;
        self
    }

    /// The same tool under a node's name: `{node}__{name}`.
    pub fn on_node(mut self, node: &str) -> Self {
        self.name = format!("{node}__{}", self.name);
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn toolset(&self) -> Toolset {
        self.toolset
    }

    pub fn description(&self) -> &str {
        &self.schemas.description
    }

    /// Details for people. Empty for tools that run elsewhere.
    pub fn notes(&self) -> &str {
        &self.schemas.notes
    }

    pub fn input_schema(&self) -> &Value {
        &self.schemas.input
    }

    /// Absent for tools that answer in plain text.
    pub fn output_schema(&self) -> Option<&Value> {
        self.schemas.output.as_ref()
    }

    /// Whether the tool runs elsewhere. Its declarations come from there.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    /// Whether the tool runs behind another machine's gate, which also records the call.
    pub(crate) fn runs_on_another_node(&self) -> bool {
        self.remote && self.toolset == Toolset::Node
    }

    /// A hash of the description and declarations. Two tools with the same definition have the same hash.
    pub(crate) fn definition(&self) -> blake3::Hash {
        *self.definition.get_or_init(|| {
            let definition = serde_json::json!([
                self.description(),
                self.input_schema(),
                self.output_schema(),
                [self.read_only, self.destructive, self.idempotent, self.open_world],
            ]);
            blake3::hash(definition.to_string().as_bytes())
        })
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub fn is_destructive(&self) -> bool {
        self.destructive
    }

    pub fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    pub fn is_open_world(&self) -> bool {
        self.open_world
    }

    pub fn capability_ids(&self) -> &[Capability] {
        &self.capabilities
    }

    pub(crate) fn declared_effects(&self) -> Option<&[Effect]> {
        self.effects.as_deref()
    }

    /// Whether this call can reach beyond this machine.
    pub fn reaches_outside(&self, call: &Call) -> bool {
        self.open_world && !self.is_offline(call)
    }

    /// Whether commands of agents do not reach the network by themselves, as [`Tool::offline_when`] declares it.
    pub(crate) fn judges_connections_of_agents(&self) -> bool {
        let agent = Principal::Agent { id: "main".to_owned() };
        self.open_world && self.is_offline(&Call::new(agent, Surface::Agent, "/".into()))
    }

    fn is_offline(&self, call: &Call) -> bool {
        self.offline.as_ref().is_some_and(|offline| offline(call))
    }

    /// Whether the machine finds out which files this call's command changed.
    pub fn watches_changes(&self, call: &Call) -> bool {
        self.watches_changes.as_ref().is_some_and(|watches| watches(call))
    }

    /// The labels of the result. Without network the result is not untrusted, unless it comes from a marked file.
    pub fn result_labels(&self, call: &Call) -> Vec<Label> {
        // Whatever comes from another machine counts as untrusted.
        let offline = self.is_offline(call) && !self.remote;
        self.labels.iter().copied().filter(|label| !offline || *label != Label::Untrusted).collect()
    }

    /// Whether its errors may show private data: it works with files, commands, or an agent's workspace.
    pub(crate) fn reaches_private(&self) -> bool {
        !self.capabilities.is_empty() || self.toolset == Toolset::Native
    }

    /// Returns the input with every violation of its schema. Whole floats become integers.
    ///
    /// Compiling the schema of an MCP server and checking a long input happen off the async threads.
    pub(crate) async fn checked(&self, mut input: Value) -> (Value, Vec<Violation>) {
        let is_ours = self.toolset != Toolset::Mcp;
        let ready = if is_ours { Some(self.validator()) } else { self.validator.get() };
        if let Some(validator) = ready.filter(|validator| validator.is_short(&input)) {
            let violations = validator.check(&mut input).err().unwrap_or_default();
            return (input, violations);
        }
        let tool = self.clone();
        let checking = tokio::task::spawn_blocking(move || {
            let violations = tool.validator().check(&mut input).err().unwrap_or_default();
            (input, violations)
        });
        checking.await.unwrap_or_else(|err| {
            let message = format!("the input could not be checked: {err}");
            (Value::Null, vec![Violation { path: String::new(), message }])
        })
    }

    fn validator(&self) -> &schema::Validator {
        self.validator.get_or_init(|| {
            let validator = schema::Validator::new(&self.schemas.input);
            if self.toolset.has_fractions() { validator.rounding() } else { validator }
        })
    }

    pub(crate) fn is_paged(&self) -> bool {
        self.paged
    }

    /// The paths that the call will touch, without those that only a walk finds.
    pub(crate) fn touched(&self, call: &Call, input: &Value) -> Result<Vec<Touch>, Violation> {
        self.touches.as_ref().map_or_else(|| Ok(Vec::new()), |touches| touches(call, input))
    }

    /// All paths that the call will touch.
    pub(crate) async fn touched_with_walk(&self, call: &Call, input: &Value) -> Result<Vec<Touch>, Unjudged> {
        let mut touches = self.touched(call, input)?;
        if let Some(walk) = &self.walked {
            let (walk, call, input) = (walk.clone(), call.clone(), input.clone());
            let walked = tokio::task::spawn_blocking(move || walk(&call, &input)).await;
            touches.extend(walked.map_err(|err| Unjudged::Unknown(err.to_string()))??);
        }
        Ok(touches)
    }

    /// Whether policy learns from the input which paths a call touches or which calls it implies.
    pub(crate) fn has_locations(&self) -> bool {
        self.touches.is_some() || self.walked.is_some() || self.implies.is_some()
    }

    /// The calls that this call implies. `None` for a tool that declares none.
    pub(crate) fn implied(&self, input: &Value) -> Option<Result<Vec<Implied>, Violation>> {
        self.implies.as_ref().map(|implies| implies(input))
    }

    pub(crate) fn run(&self, call: Arc<Call>, input: Value) -> RunFuture {
        (self.run)(call, input)
    }
}
