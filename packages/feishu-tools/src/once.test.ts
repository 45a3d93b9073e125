import { systemClock } from "@larkline/protocol/clock";
import type { FaultTable } from "@larkline/simulator";
import { describe, expect, it, vi } from "vitest";
import { toolWorld, type ToolWorld } from "./world.fixture.ts";

// Every call that a write makes, ended in each way: each effect is there once, or it is said that this is unknown.

const zone = "Asia/Shanghai";
const time = { start: "2026-12-07T10:00+08:00", end: "2026-12-07T11:00+08:00", time_zone: zone };
const ends = [
  { kind: "lose_response" },
  { kind: "drop" },
  { kind: "respond", status: 500, body: { code: 1, msg: "internal error" } },
] as const;
/** Waits are over at once; windows keep their length. */
const clock = {
  ...systemClock,
  after: (ms: number, run: () => void) => systemClock.after(Math.min(ms, 2), run),
};

interface Write {
  tool: string;
  change: string;
  /** The input of a write that says `text`, of objects made for it. */
  input: (world: ToolWorld, text: string) => object;
  /** Whether the platform takes a key, or a repeat is harmless: then it is never unknown. */
  certain: boolean;
}

const writes: Write[] = [
  {
    tool: "create_event",
    change: "event.create",
    certain: true,
    input: (_world, title) => ({ ...time, title }),
  },
  {
    tool: "create_event",
    change: "event.invite",
    certain: true,
    input: ({ bob }, title) => ({ ...time, title, people: [bob] }),
  },
  {
    tool: "change_event",
    change: "event.change",
    certain: false,
    input: (world, title) => ({
      event: eventOf(world, "Old"),
      event_title: "Old",
      title,
      time_zone: zone,
    }),
  },
  {
    tool: "cancel_event",
    change: "event.cancel",
    certain: false,
    input: (world, title) => ({ event: eventOf(world, title), title }),
  },
  {
    tool: "answer_invitation",
    change: "event.reply",
    certain: false,
    input: (world, title) => ({
      event: eventOf(world, title, world.bob),
      title,
      answer: "accept",
    }),
  },
  {
    tool: "create_task",
    change: "task.create",
    certain: true,
    input: (_world, summary) => ({ summary }),
  },
  {
    tool: "change_task",
    change: "task.change",
    certain: false,
    input: (world, summary) => ({ task: taskOf(world), summary }),
  },
  {
    tool: "comment_task",
    change: "task.comment",
    certain: false,
    input: (world, text) => ({ task: taskOf(world), text }),
  },
  {
    tool: "send_as_person",
    change: "message.send",
    certain: true,
    input: ({ platform, ann }, text) => ({
      to: platform.addChat({ type: "group", name: "Team", members: [ann] }).chatId,
      to_name: "Team",
      text,
    }),
  },
  {
    tool: "send_as_person",
    change: "message.send",
    certain: true,
    input: ({ bob }, text) => ({ to: bob, to_name: "Bob", text }),
  },
  {
    tool: "create_document",
    change: "document.create",
    certain: false,
    input: (_world, title) => ({ title }),
  },
  {
    tool: "create_document",
    change: "document.block",
    certain: false,
    input: (_world, title) => ({ title, markdown: title }),
  },
  {
    tool: "create_wiki_page",
    change: "wiki.create",
    certain: false,
    input: ({ platform, ann }, title) => ({
      space: platform.work.docs.addSpace({ name: "Team", members: [ann] }).spaceId,
      title,
    }),
  },
  {
    tool: "append_to_document",
    change: "document.block",
    certain: true,
    input: (world, markdown) => ({ document: documentOf(world, "Old").document, markdown }),
  },
  {
    tool: "edit_document",
    change: "document.update",
    certain: true,
    input: (world, text) => {
      const { block, ...place } = documentOf(world, "Old");
      return { ...place, changes: [{ block, old_text: "Old", text }] };
    },
  },
  {
    tool: "delete_document_blocks",
    change: "document.delete",
    certain: true,
    input: (world, text) => {
      const { block, ...place } = documentOf(world, text);
      return { ...place, blocks: [{ id: block, text }] };
    },
  },
  {
    tool: "comment_on_document",
    change: "document.comment",
    certain: false,
    input: (world, text) => ({ document: documentOf(world, "Old").document, text }),
  },
  {
    tool: "reply_to_comment",
    change: "document.comment",
    certain: false,
    input: (world, text) => ({ ...commentOf(world, "Old"), text }),
  },
  {
    tool: "resolve_comment",
    change: "document.resolve",
    certain: true,
    input: commentOf,
  },
  {
    tool: "add_records",
    change: "base.record",
    certain: true,
    input: (world, Task) => ({ base: tableOf(world).base, rows: [{ Task }] }),
  },
  {
    tool: "update_records",
    change: "base.update",
    certain: true,
    input: (world, Task) => {
      const { base, record } = tableOf(world);
      return { base, changes: [{ record, old_values: { Task: "Old" }, values: { Task } }] };
    },
  },
  {
    tool: "add_field",
    change: "base.field",
    certain: true,
    input: (world, name) => ({ base: tableOf(world).base, name, type: "text" }),
  },
  {
    tool: "change_field",
    change: "base.field_change",
    certain: true,
    input: (world, name) => ({ base: tableOf(world).base, field: "Task", name }),
  },
  {
    tool: "delete_field",
    change: "base.field_delete",
    certain: true,
    input: (world, field) => ({ base: tableOf(world, field).base, field, filled_rows: 0 }),
  },
  {
    tool: "write_sheet",
    change: "sheet.write",
    certain: true,
    input: (world, text) => ({ ...cellOf(world), old_rows: [["Old", "1"]], rows: [[text, 1]] }),
  },
  {
    tool: "append_rows",
    change: "sheet.append",
    certain: false,
    input: (world, text) => {
      const { spreadsheet, range } = cellOf(world);
      return { spreadsheet, sheet: range.split("!")[0], rows: [[text, 2]] };
    },
  },
  {
    tool: "create_folder",
    change: "drive.folder",
    certain: false,
    input: (_world, name) => ({ name }),
  },
  {
    tool: "upload_text_file",
    change: "drive.upload",
    certain: false,
    input: (_world, name) => ({ name, text: "Some words" }),
  },
  {
    tool: "copy_file",
    change: "drive.copy",
    certain: false,
    input: (world, name) => ({ token: documentOf(world, "Old").document, type: "docx", name }),
  },
  {
    tool: "move_file",
    change: "drive.move",
    certain: true,
    input: ({ platform, ann }, name) => {
      const { drive } = platform.work;
      const folder = drive.addFile({ owner: ann, name: "Folder", type: "folder" }).token;
      const { token } = drive.addFile({ owner: ann, name });
      return { token, type: "file", name, folder, folder_name: "Folder" };
    },
  },
  {
    tool: "delete_drive_file",
    change: "drive.delete",
    certain: true,
    input: ({ platform, ann }, name) => ({
      token: platform.work.drive.addFile({ owner: ann, name }).token,
      type: "file",
      name,
    }),
  },
  {
    tool: "add_picture",
    change: "document.picture",
    certain: true,
    input: (world, name) => ({
      document: documentOf(world, "Old").document,
      picture: world.platform.work.drive.addFile({ owner: world.ann, name, base64: picture }).token,
    }),
  },
  {
    tool: "attach_file",
    change: "document.file",
    certain: true,
    input: (world, name) => ({
      document: documentOf(world, "Old").document,
      file: world.platform.work.drive.addFile({ owner: world.ann, name, text: "x" }).token,
    }),
  },
  {
    tool: "draw_diagram",
    change: "board.draw",
    certain: false,
    input: (world, text) => ({
      document: documentOf(world, "Old").document,
      syntax: "mermaid",
      diagram: `graph TD; A-->${text}`,
    }),
  },
  {
    tool: "import_file",
    change: "drive.import",
    certain: false,
    input: ({ platform, ann }, name) => ({
      file: platform.work.drive.addFile({ owner: ann, name: "plan.md", text: "x" }).token,
      as: "document",
      name,
    }),
  },
  {
    tool: "share_file",
    change: "drive.share",
    certain: true,
    input: ({ platform, ann, bob }, name) => ({
      file: platform.work.drive.addFile({ owner: ann, name }).token,
      type: "file",
      name,
      with: bob,
      with_name: "Bob",
      permission: "view",
    }),
  },
  {
    tool: "unshare_file",
    change: "drive.unshare",
    certain: true,
    input: ({ platform, ann, bob }, name) => {
      const { drive } = platform.work;
      const file = drive.addFile({ owner: ann, name }).token;
      platform.work.share(file, bob, "edit");
      return { file, type: "file", name, with: bob, with_name: "Bob" };
    },
  },
  {
    tool: "draft_mail",
    change: "mail.draft",
    certain: false,
    input: (world, subject) => ({ to: addressOf(world), subject, text: "Some words" }),
  },
  {
    tool: "send_mail",
    change: "mail.send",
    certain: true,
    input: (world, subject) => {
      const mail = { to: addressOf(world), subject, text: "Some words" };
      return {
        draft: world.platform.work.mail.addDraft({ owner: world.ann, ...mail }).id,
        ...mail,
      };
    },
  },
  {
    tool: "decide_approval",
    change: "approval.decide",
    certain: false,
    input: ({ platform, ann, bob }, name) => {
      const { instanceCode, tasks } = platform.work.approvals.addApproval({
        initiator: bob,
        name,
        form: [{ name: "Days", value: "2" }],
        approvers: [ann],
      });
      const task = tasks[0]?.taskId;
      return { instance: instanceCode, task, form: "Days: 2", decision: "approve" };
    },
  },
];

/** The beginning of a PNG. */
const picture = Buffer.from("\x89PNG\r\n\x1a\nrest", "latin1").toString("base64");

function cellOf({ platform, ann }: ToolWorld) {
  const { token, sheets } = platform.work.sheets.addSpreadsheet({
    owner: ann,
    title: "Costs",
    rows: [["Old", 1]],
  });
  return { spreadsheet: token, range: `${sheets[0]?.sheetId}!A1:B1` };
}

function addressOf({ platform, bob }: ToolWorld): string[] {
  return [platform.work.mail.addressOf(bob)];
}

/** A document of one block that says this. */
function documentOf({ platform, ann }: ToolWorld, markdown: string) {
  const { documentId, revision, blocks } = platform.work.docs.addDocument({
    owner: ann,
    title: "Old",
    markdown,
  });
  return { document: documentId, revision, block: blocks.get(documentId)?.children?.[0] };
}

/** A comment of Bob's on a passage. */
function commentOf(world: ToolWorld, comment_text: string) {
  const { document } = documentOf(world, "Old");
  world.platform.work.share(document, world.bob, "view");
  const { comment } = world.platform.work.docs.comment({
    documentId: document,
    by: world.bob,
    text: comment_text,
    quote: "Old",
  });
  return { document, comment: comment.commentId, comment_text };
}

function tableOf({ platform, ann }: ToolWorld, ...fields: string[]) {
  const { tables } = platform.work;
  const { appToken } = tables.addBase({ owner: ann, name: "Launch" });
  const { tableId } = tables.addTable(appToken, {
    name: "Tasks",
    fields: ["Task", ...fields].map((name) => ({ name, type: 1 })),
  });
  const { record_id: record } = tables.addRecord(appToken, tableId, { Task: "Old" });
  return { base: `https://acme.feishu.cn/base/${appToken}?table=${tableId}`, record };
}

function eventOf({ platform, ann, bob }: ToolWorld, summary: string, organizer = ann): string {
  const [start, end] = [Date.parse(time.start), Date.parse(time.end)];
  const event = platform.work.calendar.addEvent({
    organizer,
    summary,
    start,
    end,
    people: [organizer === ann ? bob : ann],
  });
  for (const attendee of event.attendees) attendee.rsvp = "needs_action";
  return event.eventId;
}

function taskOf({ platform, ann }: ToolWorld): string {
  return platform.work.tasks.addTask({ creator: ann, summary: "Old" }).guid;
}

/** The call after `before` others ends like this. */
function endCall(faults: FaultTable, before: number, action: (typeof ends)[number]): void {
  const match = { path: "/open-apis/" };
  if (before > 0) faults.add({ match, times: before, action: { kind: "delay", delayMs: 0 } });
  faults.add({ match, times: 1, action });
}

describe.each(["same_result", "conflict"] as const)("a repeated key gives %s", (how) => {
  it.each(writes)(
    "$tool: $change takes effect once, whichever call fails",
    async ({ tool, change, input, certain }) => {
      const world = await toolWorld({ settings: { clock, keyWindowMs: 600_000 } });
      const { platform, call } = world;
      platform.work.setRepeatedKey(how);
      const doneWith = (text: string): number =>
        platform.work.changes.filter(
          ({ kind, content }) => kind === change && content.includes(text),
        ).length;
      const clean = input(world, "text-0.");
      const from = platform.apiCalls.length;
      expect(await call(tool, clean)).toMatchObject({ ok: true });
      const steps = platform.apiCalls.length - from;
      expect(doneWith("text-0.")).toBe(1);
      let runs = 0;
      for (const action of ends) {
        for (let step = 0; step < steps; step += 1) {
          runs += 1;
          const text = `text-${runs}.`;
          const given = input(world, text);
          endCall(platform.faults, step, action);
          const outcome = await call(tool, given);
          platform.faults.clear();
          const where = `${action.kind} at call ${step}: ${JSON.stringify(outcome)}`;
          const isSaid = JSON.stringify(outcome).includes("cannot be seen whether");
          if (certain || !isSaid) expect(outcome.ok, where).toBe(true);
          // What is unknown was not done here: the call never arrived, and is not made again.
          expect(doneWith(text), where).toBe(isSaid ? 0 : 1);
        }
      }
      expect(runs).toBe(3 * steps);
    },
  );
});

/** Runs a call up to this step of it, as a process that dies then: what it has sent arrives, and nothing comes after. */
async function cutOff(
  { platform, call }: ToolWorld,
  { tool, given, callId, step }: { tool: string; given: object; callId: string; step: number },
): Promise<void> {
  endCall(platform.faults, step, { kind: "lose_response" });
  platform.faults.add({ match: { path: "/open-apis/" }, action: { kind: "drop" } });
  const before = platform.apiCalls.length;
  const gone = new AbortController();
  const cut = call(tool, given, { callId, signal: gone.signal });
  await vi.waitFor(() => expect(platform.apiCalls.length).toBeGreaterThan(before + step));
  gone.abort();
  await cut;
  platform.faults.clear();
}

it.each([
  ["create_task", "taskKeyWindowMs", /\/task\/v2\/tasks(\?|$)/],
  ["add_records", "keyWindowMs", /\/batch_create(\?|$)/],
  ["send_as_person", "messageKeyWindowMs", /\/im\/v1\/messages(\?|$)/],
] as const)("the key of %s is trusted for as long as %s says", async (tool, setting, path) => {
  const { tools } = await toolWorld({ settings: { clock, [setting]: 20_000 } });
  expect(tools.find(({ name }) => name === tool)?.repeatMs).toBe(10_000);
  // Nothing could be repeated so soon.
  const world = await toolWorld({ settings: { clock, [setting]: 100 } });
  const write = writes.find((one) => one.tool === tool);
  const given = write?.input(world, "text-1.") ?? {};
  const match = { method: "POST", path };
  world.platform.faults.add({ match, times: 1, action: { kind: "drop" } });
  expect(await world.call(tool, given)).toMatchObject({ ok: false, unknown: true });
  expect(world.platform.faults.size).toBe(0);
});

describe("a call whose runner has died runs again under its id", () => {
  const repeated = ["create_task", "add_records", "send_as_person"];

  it("where all of its writes have a key whose conflict has a code of its own", async () => {
    const { tools } = await toolWorld({ settings: { clock } });
    const names = tools.flatMap(({ name, repeatMs }) => (repeatMs === undefined ? [] : [name]));
    expect(names.toSorted()).toEqual(repeated.toSorted());
  });

  describe.each(["same_result", "conflict"] as const)("and a repeated key gives %s", (how) => {
    it.each(writes.filter(({ tool }) => repeated.includes(tool)))(
      "$tool: $change takes effect once, wherever it was cut off",
      async ({ tool, change, input }) => {
        const world = await toolWorld({ settings: { clock, keyWindowMs: 600_000 } });
        const { platform, call } = world;
        platform.work.setRepeatedKey(how);
        const doneWith = (text: string): number =>
          platform.work.changes.filter(
            ({ kind, content }) => kind === change && content.includes(text),
          ).length;
        const from = platform.apiCalls.length;
        expect(await call(tool, input(world, "text-0."))).toMatchObject({ ok: true });
        const steps = platform.apiCalls.length - from;
        for (let step = 0; step < steps; step += 1) {
          const text = `text-${step + 1}.`;
          const given = input(world, text);
          const callId = `cut-${step}`;
          await cutOff(world, { tool, given, callId, step });
          const outcome = await call(tool, given, { callId });
          const where = `after call ${step}: ${JSON.stringify(outcome)}`;
          expect(outcome.ok, where).toBe(true);
          expect(doneWith(text), where).toBe(1);
        }
      },
    );
  });
});

describe("a call whose runner has died, and that has no key, looks", () => {
  const looking = [
    "comment_on_document",
    "comment_task",
    "copy_file",
    "create_document",
    "create_event",
    "create_folder",
    "create_wiki_page",
    "decide_approval",
    "reply_to_comment",
    "upload_text_file",
  ];
  it("in tools whose objects say who has made them, and when", async () => {
    const { tools } = await toolWorld({ settings: { clock } });
    const names = tools.flatMap(({ name, looks }) => (looks ? [name] : []));
    expect(names.toSorted()).toEqual(looking);
  });

  it.each(writes.filter(({ tool }) => looking.includes(tool)))(
    "$tool: $change is found, wherever it was cut off, and never made by looking",
    async ({ tool, change, input }) => {
      const world = await toolWorld({ settings: { clock, keyWindowMs: 600_000 } });
      const { platform, call } = world;
      const doneWith = (text: string): number =>
        platform.work.changes.filter(
          ({ kind, content }) => kind === change && content.includes(text),
        ).length;
      const from = platform.apiCalls.length;
      expect(await call(tool, input(world, "text-0."))).toMatchObject({ ok: true });
      const steps = platform.apiCalls.length - from;
      for (let step = 0; step < steps; step += 1) {
        const text = `text-${step + 1}.`;
        const given = input(world, text);
        const callId = `cut-${step}`;
        const beganAtMs = Date.now();
        await cutOff(world, { tool, given, callId, step });
        const { length } = platform.work.changes;
        const outcome = await call(tool, given, { callId, beganAtMs });
        const where = `after call ${step}: ${JSON.stringify(outcome)}`;
        expect(platform.work.changes, where).toHaveLength(length);
        const isOpen = JSON.stringify(outcome).includes("cannot be seen whether");
        expect(outcome.ok && !isOpen, where).toBe(doneWith(text) === 1);
      }
    },
  );

  it.each(writes.filter(({ tool }) => looking.includes(tool) && tool !== "decide_approval"))(
    "$tool: $change of an earlier call is not taken for it",
    async ({ tool, input }) => {
      const world = await toolWorld({ settings: { clock, keyWindowMs: 600_000 } });
      const given = input(world, "text-0.");
      expect(await world.call(tool, given)).toMatchObject({ ok: true });
      const outcome = await world.call(tool, given, { beganAtMs: Date.now() + 60_000 });
      expect(outcome).toMatchObject({ ok: false, unknown: true });
    },
  );
});
