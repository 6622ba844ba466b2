//! The protocol: what a client asks, and the answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;

use crate::process::Stop;
use crate::session::Session;
use crate::tools::{self, TABLE};

/// The place of the log of calls.
const AUDIT: &str = "vfscale://audit";
const AUDIT_TYPE: &str = "application/jsonl";

/// The words that a model reads of this server before it calls tools.
const INSTRUCTIONS: &str = "\
Files live in branches of one image. A branch is a whole tree; `branch_fork` copies one at once. \
Work in a fork, look at it with `diff`, take it over with `merge`, or drop it with `branch_delete`. \
Paths begin with / at the root of the branch. Each call that changes files says what has changed. \
`checkpoint` keeps a state, and `roll_back` returns to it. `run` starts shell commands in a branch: \
builds and tests see its files as their working directory.";

/// The server of a session.
#[derive(Clone, Debug)]
pub(crate) struct Server(Arc<Session>);

impl Server {
    pub(crate) fn new(session: Arc<Session>) -> Server {
        Server(session)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let own = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        let instructions = format!("{INSTRUCTIONS} {}", self.0.rights());
        ServerConfig::new(tools).with_server_info(own).with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let offered = TABLE.iter().filter(|tool| tools::is_offered(&self.0, tool));
        Ok(ListToolsResult::with_all_items(offered.map(told).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = &*request.name;
        let Some(tool) = tools::find(name).filter(|tool| tools::is_offered(&self.0, tool)) else {
            let name: String = name.chars().take(100).collect();
            let why = format!("no tool {name:?}; `tools/list` lists what this server offers");
            return Err(ErrorData::invalid_params(why, None));
        };
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let stop = Stop { server: self.0.ending.clone(), ..Stop::default() };
        let (session, told) = (self.0.clone(), stop.clone());
        let mut call =
            tokio::task::spawn_blocking(move || tools::call(&session, tool, arguments, &told));
        let done = tokio::select! {
            done = &mut call => done,
            () = context.ct.cancelled() => {
                stop.call.store(true, Ordering::Relaxed);
                call.await
            }
        };
        let result = match done {
            Ok(Ok(output)) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(output.text)]);
                result.structured_content = Some(output.structured);
                result
            }
            Ok(Err(refusal)) => refused(&refusal.to_string()),
            Err(e) => refused(&format!("a defect of vfscale-mcp has ended this call: {e}")),
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let audit = Resource::new(AUDIT, "audit")
            .with_title("Calls that could change something")
            .with_description(
                "A line of JSON for each call of this server, with what it has changed",
            )
            .with_mime_type(AUDIT_TYPE);
        Ok(ListResourcesResult::with_all_items(vec![audit]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != AUDIT {
            let why = format!("the only resource of this server is {AUDIT}");
            return Err(ErrorData::resource_not_found(why, None));
        }
        let text = ResourceContents::text(self.0.audit.text(), AUDIT).with_mime_type(AUDIT_TYPE);
        Ok(ReadResourceResult::new(vec![text]).into())
    }
}

fn refused(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

fn told(tool: &tools::tool::Tool) -> Tool {
    Tool::new(tool.name, tool.description, tool.input.clone())
        .with_raw_output_schema(tool.output.clone())
        .with_annotations(tool.annotations())
}
