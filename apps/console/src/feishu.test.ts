import { InstanceDirectory } from "@larkline/store/operations";
import { afterEach, beforeEach, expect, it } from "vitest";
import {
  appId,
  openWorld,
  passwords,
  signIn,
  startTestConsole,
  type Client,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

let world: World;
let running: TestConsole;
let operator: Client;

beforeEach(async () => {
  world = openWorld();
  running = await startTestConsole(world);
  operator = await signIn(running, passwords.operator);
});
afterEach(async () => {
  await running.close();
  await world.close();
});

async function textOf(response: Promise<Response>): Promise<string> {
  return (await (await response).text()).replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");
}

const check = async (app = appId) => await operator.post("/feishu/check", { app });

it("waits for the first message, and says when one has come", async () => {
  expect(await textOf(operator.get("/feishu"))).toContain("Waiting for the first message");
  const feeds = [
    { app: appId, transport: "webhook", state: "listening", lastEventAtMs: Date.now() - 300_000 },
  ] as const;
  const instance = { id: "ingress-a", service: "ingress", host: "node-1", version: "1.2.3" };
  await new InstanceDirectory(world).announce(
    { ...instance, startedAtMs: Date.now(), apps: [appId], feeds },
    30_000,
  );
  expect(await textOf(operator.get("/feishu"))).toContain(
    "Events of Feishu arrive, the last one 5 minutes ago",
  );
});

it("shows what the platform has of an app, with marks and the page that grants what is missing", async () => {
  world.results.push({
    result: "done",
    app: {
      bot: { name: "Helper", status: "enabled" },
      isPublished: false,
      scopes: ["im:message", "im:chat", "im:message.p2p_msg:readonly", "im:resource"],
      events: ["im.message.receive_v1"],
      connection: { isOpen: false, problem: "refused (1000040350)" },
    },
  });
  const page = await (await check()).text();
  const lineOf = (text: string): string =>
    page.split("<li>").find((line) => line.includes(text)) ?? "";
  expect(lineOf("Bot Helper: enabled")).toContain("✓");
  expect(lineOf("is published")).toContain("✗");
  expect(lineOf("A long connection can be")).toMatch(/✗.*refused \(1000040350\)/s);
  expect(lineOf("im:chat:readonly")).toContain("✓");
  expect(lineOf("<code>cardkit:card:write")).toMatch(
    /✗.*required: Show answers on cards that type/s,
  );
  expect(page).toContain(
    `/app/${appId}/auth?q=im:message.group_at_msg:readonly,cardkit:card:write`,
  );
  expect(lineOf("im.message.receive_v1")).toContain("✓");
  expect(page).toContain("Callbacks: cannot be read");
  expect(world.ordered).toEqual([{ v: 1, by: "console", act: { do: "check_app", app: appId } }]);
});

it("says why the platform refuses an app; viewers check nothing, and other apps are not asked about", async () => {
  world.results.push({ result: "done", app: { problem: "app secret invalid (10014)" } });
  const refused = await (await check()).text();
  expect(refused).toMatch(/role="alert".*app secret invalid \(10014\)/s);
  expect(refused).toContain(`/app/${appId}/baseinfo`);
  expect((await check("cli_other")).status).toBe(404);
  const viewer = await signIn(running, passwords.viewer ?? "");
  expect((await viewer.post("/feishu/check", { app: appId })).status).toBe(403);
  const seen = await textOf(viewer.get("/feishu"));
  expect(seen).not.toContain("Check the app");
  expect(seen).not.toContain("npm run setup");
  expect(world.ordered).toHaveLength(1);
});
