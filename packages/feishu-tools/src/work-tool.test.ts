import { systemClock } from "@larkline/protocol/clock";
import type { Exclusive } from "@larkline/tool-kit";
import { wordsOfScope } from "@larkline/feishu/cards";
import { expect, test } from "vitest";
import { apiTools } from "./api.ts";
import { decisionTools } from "./approvals.ts";
import { feishuTools } from "./index.ts";
import { toolWorld } from "./world.fixture.ts";

test("what leaves in the person's name or cannot be undone asks each time, and loudly", () => {
  const tools = [...feishuTools(), ...decisionTools(), ...apiTools()];
  const loud = tools.filter(({ risk }) => risk === "high");
  expect(loud.map(({ name }) => name)).toEqual([
    "delete_document_blocks",
    "delete_records",
    "delete_field",
    "create_event",
    "change_event",
    "cancel_event",
    "answer_invitation",
    "send_as_person",
    "delete_drive_file",
    "share_file",
    "send_mail",
    "decide_approval",
    "feishu_api",
  ]);
  for (const { name, requiresApproval, summary } of loud) {
    expect({ name, requiresApproval, summary }).toMatchObject({
      requiresApproval: true,
      summary: { zh: expect.any(String) as string, en: expect.any(String) as string },
    });
  }
  // What only reads never asks; what others see does.
  const asked = tools.filter(({ requiresApproval }) => requiresApproval);
  expect(asked.filter(({ effect }) => effect === "pure")).toEqual([]);
  const unasked = tools.filter((tool) => !tool.requiresApproval && tool.effect !== "pure");
  expect(unasked.map(({ name }) => name)).toEqual([
    "create_document",
    "create_folder",
    "upload_text_file",
    "copy_file",
    "import_file",
    "draft_mail",
  ]);
});

test("people read each permission that is asked for in words of their language", () => {
  const scopes = [...feishuTools(), ...decisionTools(), ...apiTools()].flatMap(
    (tool) => tool.scopes,
  );
  const named = [...new Set(scopes)].filter((scope) => wordsOfScope(scope, "zh") === undefined);
  expect(named).toEqual([]);
});

test("what a card cannot show whole is not done", async () => {
  const { platform, ann, call } = await toolWorld();
  const text = "x".repeat(4_000);
  const { documentId, revision, blocks } = platform.work.docs.addDocument({
    owner: ann,
    title: "Plan",
    markdown: text,
  });
  const id = blocks.get(documentId)?.children?.[0];
  const outcome = await call("delete_document_blocks", {
    document: documentId,
    revision,
    blocks: [{ id, text }],
  });
  expect(outcome).toMatchObject({ ok: false });
  expect(JSON.stringify(outcome)).toContain("too much for the card");
  expect(platform.work.changes).toEqual([]);
});

test("each change waits where the platform takes one at a time, or few", async () => {
  const { platform, call, ann, bob } = await toolWorld();
  const { docs, tables, sheets, drive, mail } = platform.work;
  const waited: string[] = [];
  const exclusive: Exclusive = async (object, { everyMs }, work) => {
    waited.push(everyMs === undefined ? object : `${object} each ${everyMs} ms`);
    return await work();
  };
  const done = async (tool: string, input: object): Promise<string[]> => {
    waited.length = 0;
    expect(await call(tool, input, { exclusive }), tool).toMatchObject({ ok: true });
    return [...waited];
  };
  const { appToken } = tables.addBase({ owner: ann, name: "Launch" });
  const { tableId } = tables.addTable(appToken, { name: "T", fields: [{ name: "A", type: 1 }] });
  const rows = { base: appToken, table: tableId, rows: [{ A: "x" }] };
  expect(await done("add_records", rows)).toEqual([`table ${appToken} ${tableId}`]);
  const { documentId } = docs.addDocument({ owner: ann, title: "Plan", markdown: "old" });
  const text = { document: documentId, markdown: "new" };
  expect(await done("append_to_document", text)).toEqual([
    "blocks of documents each 200 ms",
    "documents each 340 ms",
  ]);
  expect(await done("create_document", { title: "New" })).toEqual([`folder ${ann}`]);
  const { token, sheets: parts } = sheets.addSpreadsheet({ owner: ann, title: "S", rows: [] });
  const cells = { spreadsheet: token, sheet: parts[0]?.sheetId, rows: [["x"]] };
  expect(await done("append_rows", cells)).toEqual([`sheet ${token}`]);
  const file = drive.addFile({ owner: ann, name: "a.md" }).token;
  const named = { token: file, type: "file", name: "a.md" };
  expect(await done("delete_drive_file", named)).toEqual([
    "drive",
    "changes of the drive each 200 ms",
  ]);
  const draft = { to: [mail.addressOf(bob)], subject: "s", text: "t" };
  expect(await done("draft_mail", draft)).toEqual([`mail ${ann}`, "drafts each 200 ms"]);
});

test("a call that waits in line for a minute says so, and changes nothing", async () => {
  const clock = {
    ...systemClock,
    after: (ms: number, run: () => void) => systemClock.after(ms === 60_000 ? 1 : ms, run),
  };
  const { platform, call, ann } = await toolWorld({ settings: { clock } });
  const { token } = platform.work.drive.addFile({ owner: ann, name: "a.md" });
  const exclusive: Exclusive = async (_object, { signal }) =>
    await new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason as Error)); // as the tools give it
    });
  const input = { token, type: "file", name: "a.md" };
  expect(await call("delete_drive_file", input, { exclusive })).toMatchObject({
    ok: false,
    error: expect.stringContaining("has waited for a minute") as string,
  });
  expect(platform.work.changes).toEqual([]);
});
