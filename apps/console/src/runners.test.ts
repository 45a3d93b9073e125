import { afterEach, beforeEach, expect, it } from "vitest";
import {
  openWorld,
  passwords,
  signIn,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

const config = {
  mcp: {
    servers: {
      wiki: { url: "https://wiki.example.com/mcp" },
      files: { command: "mcp-files", args: ["/srv/docs"], runner: "local" },
    },
  },
};

let world: World;
let running: TestConsole;

beforeEach(async () => {
  world = openWorld(config);
  running = await startTestConsole(world, passwords, config);
});
afterEach(async () => {
  await running.close();
  await world.close();
});

async function pageAt(path: string, password = passwords.operator): Promise<string> {
  return await (await (await signIn(running, password)).get(path)).text();
}

it("shows operators the lines that start a further runner, for a name and a file that a shell takes", async () => {
  const page = await pageAt("/runners?name=dice&file=tools/dice.py");
  for (const line of [
    "npm run -s runner -- add dice tools/dice.py",
    "npx larkline runner add dice tools/dice.py",
    "npm run -s runner-key -- dice",
  ]) {
    expect(page).toContain(line);
  }
  for (const wrong of ["name=a%20b", "name=dice&file=x;y", "name=dice&file=$(x)", "file=x.ts"]) {
    const refused = await pageAt(`/runners?${wrong}`);
    expect(refused).toContain("A name is 1 to 64 letters");
    expect(refused).toContain("runner -- add games games.ts");
  }
});

it("shows which MCP servers have tools, and operators how to add one", async () => {
  const spec = { name: "wiki_search", description: "", inputSchema: { type: "object" } };
  const tool = { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 } as const;
  await world.directory.announce({ runner: "local", instance: "1", tools: [tool] }, 60_000);
  const rowOf = (page: string, server: string): string =>
    new RegExp(`<th scope="row">${server}</th>(.*?)</tr>`, "s").exec(page)?.[1] ?? "";
  const page = await pageAt("/runners");
  expect(rowOf(page, "wiki")).toMatch(/https:\/\/wiki.*<td>local<\/td>\s*<td>1<\/td>/s);
  expect(rowOf(page, "files")).toMatch(/mcp-files \/srv\/docs.*no tools/s);
  expect(page).toContain("Add an MCP server");
  const seen = await pageAt("/runners", passwords.viewer);
  expect(rowOf(seen, "wiki")).toMatch(/<td>Address<\/td>.*<td>1<\/td>/s);
  for (const hidden of ["https://wiki", "/srv/docs", "runner -- add", "Add an MCP server"]) {
    expect(seen).not.toContain(hidden);
  }
});
