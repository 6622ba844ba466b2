"""A session of an agent with the MCP client package of Python: client.py VFSCALE IMAGE [--no-mounts].

Starts `vfscale mcp`, and checks every structured result against the schema of its tool.
"""

import sys

import anyio
import jsonschema
from mcp import Client, ClientSession, MCPError, StdioServerParameters, stdio_client

VFSCALE, IMAGE = sys.argv[1:3]
MOUNTS = "--no-mounts" not in sys.argv
TESTS = """import unittest
from add import add
class Test(unittest.TestCase):
    def test(self):
        self.assertEqual(add(2, 3), 5)
"""


def server(*options):
    return StdioServerParameters(command=VFSCALE, args=["mcp", *options, IMAGE])


class Agent:
    """Calls tools, and checks what they return."""

    def __init__(self, client, tools):
        self.client, self.tools = client, {tool.name: tool for tool in tools}

    async def call(self, tool, /, **arguments):
        jsonschema.validate(arguments, self.tools[tool].input_schema)
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        jsonschema.validate(result.structured_content, self.tools[tool].output_schema)
        assert result.content[0].text
        return result.structured_content

    async def refused(self, words, tool, /, **arguments):
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error and words in result.content[0].text, (tool, arguments, result)


def files(result):
    return [(it["kind"], it["path"]) for it in result["changes"]["files"]]


async def session(agent):
    """Two agents' tries of one task: the better one is kept."""
    await agent.call("write", path="/test_add.py", content=TESTS)
    await agent.call("write", path="/add.py", content="def add(a, b):\n    raise NotImplementedError\n")
    for name, body in [("right", "return a + b"), ("wrong", "return a - b")]:
        await agent.call("branch_fork", name=name)
        edit = {"old": "raise NotImplementedError", "new": body}
        edited = await agent.call("edit", branch=name, path="/add.py", **edit)
        assert files(edited) == [("changed", "/add.py")], edited
        if MOUNTS:
            command = "python3 -B -m unittest -q"
            ran = await agent.call("run", branch=name, command=command, timeout_seconds=100)
            assert (ran["status"] == 0) == (name == "right"), ran
            assert ran["changes"]["total"] == 0, ran
    found = await agent.call("search", branch="right", content="a + b", glob="*.py")
    assert [(it["path"], it["line"]) for it in found["matches"]] == [("/add.py", 2)], found
    diff = await agent.call("diff", a="wrong", b="right", patch=True)
    assert "+    return a + b" in diff["patch"], diff
    point = await agent.call("checkpoint", text="before the merge")
    merged = await agent.call("merge", **{"from": "right"})
    assert merged["done"] and files(merged) == [("changed", "/add.py")], merged
    conflict = await agent.call("merge", **{"from": "wrong"}, strategy="fail")
    assert not conflict["done"] and conflict["conflicts"][0]["kind"] == "content", conflict
    back = await agent.call("roll_back", to=point["name"])
    assert files(back) == [("changed", "/add.py")], back
    text = (await agent.call("read", path="/add.py"))["content"]
    assert "NotImplementedError" in text
    await agent.call("merge", **{"from": back["changes"]["checkpoint"]}, dry_run=True)
    for name in ["right", "wrong"]:
        await agent.call("branch_delete", name=name)
    assert (await agent.call("branch_list"))["total"] == 1
    assert (await agent.call("log"))["states"][0]["kind"] == "now"
    await agent.call("mkdir", path="/a/b", parents=True)
    await agent.call("move", **{"from": "/add.py"}, to="/a/b/add.py")
    listed = await agent.call("list", path="/a", depth=3)
    assert [it["path"] for it in listed["entries"]] == ["/a/b", "/a/b/add.py"], listed
    await agent.call("remove", path="/a", recursive=True)


async def hostile(agent):
    await agent.refused("`..`", "read", path="/../etc/passwd")
    await agent.refused("wrong arguments", "read", path=3)
    await agent.refused("missing field", "write", path="/f")
    await agent.refused("no branch", "read", path="/f", branch="nope")
    await agent.refused("it can be 1 to", "list", limit=10**9)
    await agent.refused("is no path", "read", path="/" + "x/" * 100_000)
    try:
        await agent.client.call_tool("nothing", {})
        raise AssertionError("a tool that is not there")
    except MCPError as error:
        assert "no tool" in str(error), error


async def main():
    async with Client(server("--audit", IMAGE + ".audit")) as client:
        tools = (await client.list_tools()).tools
        assert len(tools) == 18, [tool.name for tool in tools]
        agent = Agent(client, tools)
        await session(agent)
        await hostile(agent)
        audit = (await client.read_resource("vfscale://audit")).contents[0].text
        assert audit == open(IMAGE + ".audit").read() and len(audit.splitlines()) > 10
    # As older clients begin, and a server that only reads.
    async with stdio_client(server("--read-only")) as streams, ClientSession(*streams) as client:
        assert (await client.initialize()).server_info.name == "vfscale-mcp"
        tools = (await client.list_tools()).tools
        assert all(tool.annotations.read_only_hint for tool in tools)
        assert (await Agent(client, tools).call("list"))["entries"][0]["path"] == "/test_add.py"
    print("ok")


anyio.run(main)
