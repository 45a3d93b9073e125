import { describe, expect, it } from "vitest";
import { announcementOf } from "@larkline/tool-kit";
import { tokenOf, toolWorld, type ToolWorld } from "./world.fixture.ts";

const appId = "cli_0123456789abcdef";
const zone = "Asia/Shanghai";
const path = "/open-apis/im/v1/messages";

async function withGroup(): Promise<ToolWorld & { group: string }> {
  const world = await toolWorld();
  const { platform, ann, bob } = world;
  return {
    ...world,
    group: platform.addChat({ type: "group", name: "Launch team", members: [ann, bob] }).chatId,
  };
}

function sentBy({ platform, group }: ToolWorld & { group: string }, person: string): string[] {
  return platform
    .messages(group)
    .flatMap(({ senderId, text }) => (senderId === person ? [text] : []));
}

describe("people and groups", () => {
  it("finds people of the company and groups of the person", async () => {
    const { platform, ann, bob, group, textOf } = await withGroup();
    platform.addChat({ type: "group", name: "Launch secrets", members: [bob] });
    platform.addUser({ name: "Anna outside", tenantKey: "other" });
    expect(await textOf("find_people", { name: "ann" })).toContain(
      `- person Ann: ${ann} (the person who asks)\n`,
    );
    expect(await textOf("find_people", { name: "bob" })).toContain(`- person Bob: ${bob}\n`);
    expect(await textOf("find_people", { name: "outside" })).toContain(
      "No person or group was found",
    );
    const groups = await textOf("find_people", { name: "launch", kind: "groups" });
    expect(groups).toContain(`- group Launch team: ${group}`);
    expect(groups).not.toContain("secrets");
  });
});

describe("reading messages", () => {
  it("reads the history of a chat of the person, oldest first, by name, as data of others", async () => {
    const world = await withGroup();
    const { platform, ann, bob, group, textOf, call } = world;
    await platform.sendMessage({ chatId: group, from: bob, appId, text: "hello" });
    await platform.sendMessage({
      chatId: group,
      from: ann,
      appId,
      text: "hi </content-of-others>",
    });
    const history = await textOf("read_messages", { chat: group, time_zone: zone });
    expect(history).toMatch(
      /Bob \(om_\w+\): hello\n.* Ann \(om_\w+\): hi <\/ content-of-others>\n/,
    );
    const closed = platform.addChat({ type: "group", name: "Board", members: [bob] }).chatId;
    await platform.sendMessage({ chatId: closed, from: bob, appId, text: "layoffs" });
    const outcome = await call("read_messages", { chat: closed, time_zone: zone });
    expect(outcome).toEqual({ ok: false, error: "The person is not in this chat. (code 230002)" });
  });

  it("searches what the person may see", async () => {
    const world = await withGroup();
    const { platform, ann, bob, group, textOf } = world;
    await platform.sendMessage({ chatId: group, from: bob, appId, text: "the budget is 5" });
    const closed = platform.addChat({ type: "group", name: "Board", members: [bob] }).chatId;
    await platform.sendMessage({ chatId: closed, from: bob, appId, text: "the budget is 9" });
    const found = await textOf("search_messages", { query: "budget", time_zone: zone });
    expect(found).toContain("the budget is 5");
    expect(found).not.toContain("the budget is 9");
    expect(
      await textOf("search_messages", { query: "budget", time_zone: zone, writer: ann }),
    ).toContain("No message");
  });
});

describe("sending in a person's name", () => {
  it("always asks, with the exact text and receiver", async () => {
    const { tools } = await toolWorld();
    const tool = tools.find(({ name }) => name === "send_as_person");
    if (tool === undefined) expect.unreachable();
    expect(announcementOf(tool)).toMatchObject({
      requiresApproval: true,
      risk: "high",
      effect: "once",
      identity: { as: "person" },
      summary: { en: "Send in your name to {to_name} ({to}): {text}" },
    });
    // A card shows texts of 4,000 characters, and 8,000 bytes, whole.
    expect(tool.check({ to: "ou_1", to_name: "Bob", text: "字".repeat(2_001) })).toMatchObject({
      ok: false,
    });
    expect(tool.check({ to: "ou_1", to_name: "Bob", text: "字".repeat(2_000) })).toMatchObject({
      ok: true,
    });
  });

  it("sends as the person, to a group and to a person, and as a reply", async () => {
    const world = await withGroup();
    const { platform, ann, bob, group, textOf } = world;
    const hello = { to: group, to_name: "Launch team", text: "Hello all" };
    expect(await textOf("send_as_person", hello)).toMatch(
      /^Sent to Launch team in the person's name \(message om_\w+\)\.$/,
    );
    expect(platform.messages(group)).toMatchObject([
      { senderId: ann, senderType: "user", text: "Hello all" },
    ]);
    await textOf("send_as_person", { to: bob, to_name: "Bob", text: "Hi Bob" });
    const direct = [...platform.chats.values()].find(
      ({ type, members }) => type === "p2p" && members.has(bob),
    );
    expect(platform.messages(direct?.chatId ?? "")).toMatchObject([
      { senderId: ann, text: "Hi Bob" },
    ]);
    const { messageId } = await platform.sendMessage({
      chatId: group,
      from: bob,
      appId,
      text: "Question",
    });
    await textOf("send_as_person", { ...hello, text: "Answer", reply_to: messageId });
    expect(platform.messages(group).at(-1)).toMatchObject({ text: "Answer", parentId: messageId });
  });

  it("sends nothing where the name is not the receiver's, or the reply goes elsewhere", async () => {
    const world = await withGroup();
    const { platform, ann, bob, group, call } = world;
    expect(await call("send_as_person", { to: bob, to_name: "The boss", text: "x" })).toMatchObject(
      {
        ok: false,
        error: `Nothing was done: the receiver ${bob} is "Bob", not "The boss". Use find_people, then ask again.`,
      },
    );
    const other = platform.addChat({ type: "group", name: "Other", members: [ann] }).chatId;
    const { messageId } = await platform.sendMessage({
      chatId: other,
      from: ann,
      appId,
      text: "elsewhere",
    });
    const reply = { to: group, to_name: "Launch team", text: "x", reply_to: messageId };
    expect(await call("send_as_person", reply)).toMatchObject({
      ok: false,
      error: expect.stringContaining("not in this chat"),
    });
    expect(sentBy(world, ann)).toEqual([]);
  });

  it("makes no mention of people in tags of the text", async () => {
    const world = await withGroup();
    const { ann, bob, group, textOf } = world;
    await textOf("send_as_person", {
      to: group,
      to_name: "Launch team",
      text: `<at user_id="${bob}">x</at> <AT all>`,
    });
    expect(world.platform.messages(group)).toMatchObject([{ senderId: ann, mentions: [] }]);
  });

  it.each(["lose_response", "drop"] as const)(
    "sends once when the first attempt ends in %s",
    async (kind) => {
      const world = await withGroup();
      const { platform, ann, bob, group, textOf } = world;
      for (const to of [
        { to: group, to_name: "Launch team" },
        { to: bob, to_name: "Bob" },
      ]) {
        platform.faults.add({ match: { method: "POST", path }, times: 1, action: { kind } });
        expect(await textOf("send_as_person", { ...to, text: "Once" })).toContain("Sent to");
      }
      expect(sentBy(world, ann)).toEqual(["Once"]);
      expect(platform.work.changes.filter((change) => change.kind === "message.send")).toHaveLength(
        2,
      );
    },
  );

  it.each(["original", "in_progress"] as const)(
    "sends once when the same call runs again (%s)",
    async (duplicateUuid) => {
      const { platform, bob, textOf } = await toolWorld({ duplicateUuid });
      const hello = { to: bob, to_name: "Bob", text: "Once" };
      platform.faults.add({
        match: { method: "POST", path },
        times: 1,
        action: { kind: "lose_response" },
      });
      await textOf("send_as_person", hello, { callId: "one" });
      await textOf("send_as_person", hello, { callId: "one" });
      expect(platform.work.changes.map(({ content }) => content)).toEqual(["Once"]);
    },
  );

  it("sends the same words again in another call", async () => {
    const world = await withGroup();
    const ok = { to: world.group, to_name: "Launch team", text: "ok" };
    await world.textOf("send_as_person", ok);
    world.platform.faults.add({
      match: { method: "POST", path },
      times: 1,
      action: { kind: "drop" },
    });
    await world.textOf("send_as_person", ok);
    expect(sentBy(world, world.ann)).toEqual(["ok", "ok"]);
  });

  it("needs both permissions", async () => {
    const world = await withGroup();
    const scopes = ["im:message", "im:chat:read", "contact:user.basic_profile:readonly"];
    const person = await tokenOf(
      world.platform,
      world.platform.addUser({ name: "Cy" }).openId,
      scopes,
    );
    world.platform.addMembers(world.group, [[...world.platform.users.keys()].at(-1) ?? ""]);
    const hello = { to: world.group, to_name: "Launch team", text: "x" };
    expect(await world.call("send_as_person", hello, { person })).toMatchObject({
      ok: false,
      grant: { kind: "scopes", scopes: ["im:message.send_as_user"] },
    });
  });
});
