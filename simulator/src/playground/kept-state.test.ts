import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@larkline/process/telemetry";
import { expect, onTestFinished, test, vi } from "vitest";
import { parseSnapshot, startFeishuSimulator, type SimulatorSnapshot } from "../index.ts";
import { readKeptState, StateKeeper } from "./kept-state.ts";

const app = { appId: "cli_0123456789abcdef", appSecret: "secret" };

async function started(restore?: SimulatorSnapshot) {
  const simulator = await startFeishuSimulator({
    apps: [app],
    ...(restore === undefined ? {} : { restore }),
  });
  onTestFinished(async () => await simulator.close());
  return simulator;
}

async function call(url: string, body: object, token = ""): Promise<Record<string, unknown>> {
  const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  return (await response.json()) as Record<string, unknown>; // the simulator's own answer
}

test("what people work with is there after a restart, with rights to it and keys of writes", async () => {
  const before = await started();
  const ann = before.addUser({ name: "Ann" }).openId;
  const { docs, tables, calendar, tasks, meetings, sheets, drive, approvals, mail } = before.work;
  const { documentId } = docs.addDocument({ owner: ann, title: "Plan", markdown: "- [ ] Ship" });
  const { spaceId } = docs.addSpace({ name: "Team", members: [ann] });
  docs.addNode({ spaceId, documentId });
  const { appToken } = tables.addBase({ owner: ann, name: "Launch" });
  const { tableId } = tables.addTable(appToken, {
    name: "Tasks",
    fields: [{ name: "A", type: 1 }],
  });
  tables.addRecord(appToken, tableId, { A: { map: ["no map"] } });
  const span = { start: 1_800_000_000_000, end: 1_800_000_900_000 };
  calendar.addRoom({ name: "Azalea", capacity: 4 });
  calendar.addEvent({ organizer: ann, summary: "Review", ...span });
  tasks.addTask({ creator: ann, summary: "Plan", assignees: [ann] });
  meetings.addMeeting({ topic: "Review", organizer: ann, participants: [], ...span });
  sheets.addSpreadsheet({ owner: ann, title: "Costs", rows: [["Tea", 3, null, true]] });
  drive.addFile({ owner: ann, name: "notes.md", text: "words" });
  approvals.addApproval({ initiator: ann, name: "Leave", form: [], approvers: [ann] });
  mail.addMail({ to: ann, from: "eve@example.org", subject: "Hi", text: "words" });
  const url = `${before.url}/open-apis/auth/v3/tenant_access_token/internal`;
  const signIn = { app_id: app.appId, app_secret: app.appSecret };
  const { tenant_access_token: token } = await call(url, signIn);
  const task = { summary: "Once", client_token: "k1" };
  const path = "/open-apis/task/v2/tasks";
  const first = await call(`${before.url}${path}`, task, String(token));

  const parsed = parseSnapshot(JSON.parse(JSON.stringify(before.snapshot(10))));
  if (!parsed.ok) throw new Error(parsed.error);
  const after = await started(parsed.value);
  const { work } = after;
  expect(work.docs).toMatchObject({ documents: docs.documents, nodes: docs.nodes });
  expect(work.docs.markdown(documentId)).toBe("- [ ] Ship");
  expect(work.tables.bases).toEqual(tables.bases);
  expect(work.calendar).toMatchObject({ events: calendar.events, rooms: calendar.rooms });
  expect(work.tasks.tasks).toEqual(tasks.tasks);
  expect(work.meetings.meetings).toEqual(meetings.meetings);
  expect(work.sheets.spreadsheets).toEqual(sheets.spreadsheets);
  expect(work.drive.files).toEqual(drive.files);
  expect(work.approvals.approvals).toEqual(approvals.approvals);
  expect(work.mail.mails).toEqual(mail.mails);
  expect([work.may(ann, documentId, "edit"), work.may("ou_other", documentId)]).toEqual([
    true,
    false,
  ]);
  const again = await call(`${after.url}/open-apis/auth/v3/tenant_access_token/internal`, signIn);
  expect(
    await call(`${after.url}${path}`, task, String(again["tenant_access_token"])),
  ).toMatchObject({ data: first["data"] });
  expect(work.tasks.tasks.size).toBe(2);
});

test("a change by a call alone is kept, too", async () => {
  const simulator = await started();
  const folder = await mkdtemp(join(tmpdir(), "larkline-kept-"));
  onTestFinished(async () => await rm(folder, { recursive: true, force: true }));
  const logger = createLogger({ service: "test", level: "silent" });
  const keeper = new StateKeeper(simulator, { folder, logger });
  onTestFinished(async () => await keeper.close());
  const kept = async () => JSON.stringify((await readKeptState(folder)).snapshot ?? {});
  await vi.waitFor(async () => expect(await kept()).toContain("work"), { timeout: 10_000 });
  const url = `${simulator.url}/open-apis/auth/v3/tenant_access_token/internal`;
  const { tenant_access_token: token } = await call(url, {
    app_id: app.appId,
    app_secret: app.appSecret,
  });
  await call(`${simulator.url}/open-apis/task/v2/tasks`, { summary: "Kept" }, String(token));
  await vi.waitFor(async () => expect(await kept()).toContain("Kept"), { timeout: 10_000 });
});
