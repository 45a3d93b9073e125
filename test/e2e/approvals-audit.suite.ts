import { auditKinds, type AuditRecord } from "@larkline/store";
import { beforeAll, describe, expect, it } from "vitest";
import { runApp } from "../system/app-process.ts";
import { write } from "../system/answers.ts";
import { decide, openQuestions, untilAsked } from "../system/approvals.ts";
import { answerTo, type Writer } from "../system/sending.ts";
import { system } from "./approvals-deployment.ts";

const secret = "hunter2-hunter2";

// The first of its deployment: the log holds nothing else.
let person: Writer;
let records: AuditRecord[];
let output: string;

/** What `npm run audit` prints. */
async function audit(...options: string[]): Promise<{ code: number | null; output: string }> {
  const file = "apps/cli/src/main.ts";
  return await runApp(
    { file, args: ["audit", "--file", "no-such.env", ...options] },
    system.env,
    60_000,
  );
}

function recordsOf(kind: string, tool?: string): AuditRecord[] {
  return records.filter(
    (record) => record.kind === kind && (tool === undefined || record.tool === tool),
  );
}

describe("the audit log after a batch of plain calls and calls that people decided about", () => {
  beforeAll(async () => {
    person = system.person("Ann");
    const lines = [
      "batch",
      'call note_pure {"key":"plain-key"}',
      `call ask_once ${JSON.stringify({ key: "first-key", password: secret })}`,
      "call fail {}",
      'call ask_once {"key":"second-key"}',
    ];
    const written = await write(system, person, lines.join("\n"));
    await untilAsked(system, person.chatId, 2);
    for (const card of openQuestions(system, person.chatId)) {
      const isFirst = JSON.stringify(card.message.card?.json).includes("first-key");
      const wanted = { decision: isFirst ? "approve" : "reject" };
      await decide(system, card, { openId: person.openId, wanted });
    }
    await answerTo(system, written);
    const exported = await audit();
    if (exported.code !== 0) throw new Error(exported.output);
    ({ output } = exported);
    const whole = output.split("\n").filter((line) => line !== "");
    records = whole.map((line) => JSON.parse(line) as AuditRecord); // one record a line, by contract
  });

  it("says of each call that could run whom it was opened for, that it was started, and how it ended", () => {
    const opened = recordsOf("call_opened");
    // A call that was rejected was never opened.
    expect(opened.map(({ tool }) => tool).toSorted()).toEqual(["ask_once", "fail", "note_pure"]);
    expect(new Set(opened.map(({ callId }) => callId)).size).toBe(opened.length);
    for (const record of opened) {
      expect(record).toMatchObject({
        app: system.appId,
        userId: person.openId,
        chatId: person.chatId,
      });
      expect(record.argumentsHash).toMatch(/^[\w-]{20,}$/);
    }
    expect(
      recordsOf("call_ended")
        .map(({ tool, result }) => [tool, result].join(" "))
        .toSorted(),
    ).toEqual(["ask_once ok", "fail error", "note_pure ok"]);
    // Starts of pure calls are not recorded; of the others only the approved one was started.
    expect(recordsOf("call_started", "ask_once")).toMatchObject([{ runner: "recording" }]);
  });

  it("says of each approval that it was asked for, who decided what, and how it ended", () => {
    const requested = recordsOf("approval_requested");
    expect(requested.map(({ tool }) => tool)).toEqual(["ask_once", "ask_once"]);
    const ids = requested.map(({ approvalId }) => approvalId).toSorted();
    for (const [kind, results] of [
      ["approval_decided", ["approve", "reject"]],
      ["approval_settled", ["approved", "rejected"]],
    ] as const) {
      expect(
        recordsOf(kind)
          .map(({ result }) => result)
          .toSorted(),
      ).toEqual(results);
      expect(
        recordsOf(kind)
          .map(({ approvalId }) => approvalId)
          .toSorted(),
      ).toEqual(ids);
    }
    for (const { userId } of recordsOf("approval_decided")) expect(userId).toBe(person.openId);
  });

  it("is in the order of time: a question before its decision, a decision before the call starts, the start before the end", () => {
    const times = records.map(({ atMs }) => atMs);
    expect(times).toEqual(times.toSorted((one, other) => one - other));
    const [started] = recordsOf("call_started", "ask_once");
    const story = records.filter(
      ({ callId }) => callId !== undefined && callId === started?.callId,
    );
    expect(story.map(({ kind }) => kind)).toEqual([
      "approval_requested",
      "approval_decided",
      "approval_settled",
      "call_opened",
      "call_started",
      "call_ended",
    ]);
    // All of it names the approval that let the call run.
    expect(new Set(story.map(({ approvalId }) => approvalId)).size).toBe(1);
  });

  it("holds neither arguments nor results nor secrets", () => {
    for (const record of records) expect(auditKinds).toContain(record.kind);
    for (const word of [
      secret,
      "plain-key",
      "first-key",
      "second-key",
      "this tool always fails",
      "password",
    ]) {
      expect(output).not.toContain(word);
    }
  });

  it("is exported from and to a time", async () => {
    const latest = Math.max(...records.map(({ atMs }) => atMs));
    const later = await audit("--from", new Date(latest + 1_000).toISOString());
    expect(later).toEqual({ code: 0, output: "" });
    const refused = await audit("--from", "yesterday");
    expect(refused.code).toBe(2);
    expect(refused.output).toContain("--from and --to must be times");
  });
});
