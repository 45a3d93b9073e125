import { describe, expect, it } from "vitest";
import { mcpToolSettings, mountsServer } from "./mcp-config.ts";
import { resolveConfig } from "./larkline-config.ts";

function resolved(servers: Record<string, object>) {
  return resolveConfig({ mcp: { servers } });
}

const unhinted = { name: "send", readOnly: false, idempotent: false };

describe("MCP servers of a configuration", () => {
  it("a program is contained, without network and without variables, unless the configuration says so", () => {
    expect(resolved({ files: { command: "mcp-files", args: ["/srv"] } })).toMatchObject({
      value: {
        mcp: {
          servers: [
            {
              name: "files",
              access: {
                kind: "stdio",
                command: "mcp-files",
                args: ["/srv"],
                env: [],
                readable: [],
                network: "none",
              },
              runner: undefined,
              trusted: false,
              tools: [],
              timeoutMs: 60_000,
              connectTimeoutMs: 30_000,
              elicitation: false,
            },
          ],
        },
      },
    });
  });

  it("an address gets headers from variables, whose names alone are in the configuration", () => {
    const server = {
      url: "https://mcp.example.com",
      headers: { Authorization: "CRM_AUTH" },
      runner: "crm",
    };
    expect(resolved({ crm: server })).toMatchObject({
      value: {
        mcp: {
          servers: [
            {
              access: {
                kind: "http",
                url: server.url,
                headers: server.headers,
                allowPrivate: false,
              },
              runner: "crm",
            },
          ],
        },
      },
    });
  });

  it.each([
    ["neither program nor address", { args: [] }, "must have required property 'command'"],
    ["both", { url: "https://x.example", command: "x" }, "additional properties 'command'"],
    ["another protocol", { url: "file:///etc/passwd" }, "url must begin with http:// or https://"],
    [
      "a value in place of a variable's name",
      { url: "https://x.example", headers: { A: "Bearer 123" } },
      "headers.A",
    ],
    ["a relative directory", { command: "x", readable: ["data"] }, "readable.0"],
    ["a program that asks people", { command: "x", elicitation: true }, "'elicitation'"],
    ["a typing error of a tool", { command: "x", tools: { a: { efect: "once" } } }, "'efect'"],
  ])("refuses %s, naming the server", (_, server, problem) => {
    const result = resolved({ crm: server });
    expect(result.ok ? "" : result.error).toMatch(/^mcp\.servers\.crm: /);
    expect(result.ok ? "" : result.error).toContain(problem);
  });
});

it("a server without a runner is mounted by the main one, and one with a runner by that alone", () => {
  const mounting = (runner?: string) =>
    ["default", "local", "crm"].filter((name) => mountsServer(name, { runner }));
  expect(mounting()).toEqual(["default", "local"]);
  expect(mounting("crm")).toEqual(["crm"]);
});

describe("mcpToolSettings", () => {
  const server = { tools: [], timeoutMs: 5_000, trusted: false };

  it("expects the worst of a tool; what its server says leaves people out only where the server is trusted", () => {
    expect(mcpToolSettings(server, unhinted)).toEqual({
      effect: "once",
      requiresApproval: true,
      timeoutMs: 5_000,
      risk: "medium",
      hidden: false,
    });
    expect(mcpToolSettings(server, { ...unhinted, idempotent: true })).toMatchObject({
      effect: "idempotent",
      requiresApproval: true,
    });
    const readOnly = { ...unhinted, readOnly: true };
    expect(mcpToolSettings(server, readOnly)).toMatchObject({
      effect: "pure",
      requiresApproval: true,
      risk: "medium",
    });
    const trusted = mcpToolSettings({ ...server, trusted: true }, readOnly);
    expect(trusted).toMatchObject({ effect: "pure", requiresApproval: false, risk: "low" });
  });

  it("the configuration has the last word, later patterns over earlier ones", () => {
    const tools = [
      ["*", { effect: "once", risk: "high" }],
      ["get_*", { requiresApproval: false, risk: "low" }],
      ["get_secret", { hidden: true }],
    ] as const;
    const hinted = { name: "get_secret", readOnly: true, idempotent: true };
    expect(mcpToolSettings({ ...server, tools }, hinted)).toEqual({
      effect: "once",
      requiresApproval: false,
      timeoutMs: 5_000,
      risk: "low",
      hidden: true,
    });
    expect(mcpToolSettings({ ...server, tools }, unhinted)).toMatchObject({
      risk: "high",
      requiresApproval: true,
    });
  });
});
