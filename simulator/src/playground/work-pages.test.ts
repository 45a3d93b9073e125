import { fastify } from "fastify";
import { expect, onTestFinished, test } from "vitest";
import { startFeishuSimulator } from "../index.ts";
import { registerWorkPages } from "./work-pages.ts";

async function scene() {
  const simulator = await startFeishuSimulator({
    apps: [{ appId: "cli_0123456789abcdef", appSecret: "secret" }],
  });
  onTestFinished(() => simulator.close());
  const server = fastify();
  onTestFinished(() => server.close());
  registerWorkPages(server, simulator);
  const page = async (url: string) => await server.inject({ method: "GET", url });
  const [ann, bob] = ["Ann", "Bob"].map((name) => simulator.addUser({ name }).openId);
  return { simulator, server, page, ann: ann ?? "", bob: bob ?? "" };
}

test("the calendar shows each person their own events", async () => {
  const { simulator, page, ann, bob } = await scene();
  const start = Date.parse("2026-12-07T10:00+08:00");
  const span = { start, end: start + 3_600_000 };
  simulator.work.calendar.addEvent({
    organizer: ann,
    summary: "Review <1>",
    people: [bob],
    ...span,
  });
  simulator.work.calendar.addEvent({ organizer: ann, summary: "Alone", ...span });
  const first = (await page("/page/calendar")).body;
  expect(first).toContain("<li>2026-12-07 10:00 – 2026-12-07 11:00 Review &lt;1> (Ann) Bob ✓</li>");
  expect(first).toContain("Alone");
  const second = (await page(`/page/calendar?as=${bob}`)).body;
  expect(second).toContain("Review");
  expect(second).not.toContain("Alone");
  expect((await page("/page/calendar?as=ou_unknown")).statusCode).toBe(404);
});

test("the tasks show who has them, and whether they are done", async () => {
  const { simulator, page, ann, bob } = await scene();
  const task = simulator.work.tasks.addTask({ creator: ann, summary: "Plan", assignees: [bob] });
  expect((await page(`/page/tasks?as=${bob}`)).body).toContain("<li>☐ Plan Bob");
  task.completedAt = 1;
  expect((await page("/page/tasks")).body).toContain("<li>☑ Plan Bob");
});

test("a button of the tasks gives the bot one, as the person", async () => {
  const { simulator, server, ann } = await scene();
  const url = `/page/tasks?as=${ann}`;
  const pressed = await server.inject({ method: "POST", url });
  expect(pressed.statusCode).toBe(303);
  const [task] = simulator.work.tasks.tasks.values();
  expect(task).toMatchObject({ creator: ann, members: [{ id: "cli_0123456789abcdef" }] });
});

test("documents and tables are shown to those who may see them", async () => {
  const { simulator, page, ann, bob } = await scene();
  const { docs, tables } = simulator.work;
  docs.addDocument({ owner: ann, title: "Plan <1>", markdown: "# Goals" });
  const { appToken } = tables.addBase({ owner: ann, name: "Launch" });
  const { tableId } = tables.addTable(appToken, {
    name: "Tasks",
    fields: [{ name: "Task", type: 1 }],
  });
  tables.addRecord(appToken, tableId, { Task: "Write" });
  expect((await page("/page/documents")).body).toContain(
    "<h2>Plan &lt;1> (Ann)</h2><pre># Goals</pre>",
  );
  expect((await page("/page/tables")).body).toContain(
    "<tr><th>Task</th></tr><tr><td>Write</td></tr>",
  );
  for (const path of ["documents", "tables"]) {
    expect((await page(`/page/${path}?as=${bob}`)).body).toContain("<p>无 · None</p>");
  }
});

test("spreadsheets, files, mails and approvals are shown to those whose they are", async () => {
  const { simulator, page, ann, bob } = await scene();
  const { sheets, drive, mail, approvals } = simulator.work;
  sheets.addSpreadsheet({ owner: ann, title: "Costs", rows: [["Tea", 3]] });
  const folder = drive.addFile({ owner: ann, name: "Old", type: "folder" }).token;
  drive.addFile({ owner: ann, name: "notes.md", folder });
  mail.addMail({ to: ann, from: "eve@example.org", subject: "Hello", text: "<Hi>" });
  approvals.addApproval({
    initiator: ann,
    name: "Leave",
    form: [{ name: "Days", value: "2" }],
    approvers: [ann],
  });
  expect((await page("/page/sheets")).body).toContain("<tr><td>Tea</td><td>3</td></tr>");
  expect((await page("/page/files")).body).toContain("<li>📄 Old / notes.md (Ann)</li>");
  expect((await page("/page/mails")).body).toContain("<li>← eve@example.org Hello: &lt;Hi></li>");
  expect((await page("/page/approvals")).body).toContain("<li>Leave (Ann) Days: 2 Ann … </li>");
  for (const path of ["sheets", "files", "mails", "approvals"]) {
    expect((await page(`/page/${path}?as=${bob}`)).body).toContain("<p>无 · None</p>");
  }
});

test("a meeting that a person holds is over at once, and its people see the minutes", async () => {
  const { server, page, ann, bob } = await scene();
  const held = await server.inject({ method: "POST", url: `/page/meetings?as=${ann}` });
  expect([held.statusCode, held.headers.location]).toEqual([303, `/page/meetings?as=${ann}`]);
  const { body } = await page(`/page/meetings?as=${bob}`);
  expect(body).toContain("<li>📹 周会 · Weekly meeting 1 (Ann)");
  expect(body).toContain("☐ Ann: 写发布说明");
  const unknown = await server.inject({ method: "POST", url: "/page/meetings?as=ou_unknown" });
  expect(unknown.statusCode).toBe(404);
});

test("buttons let a person get a mail and an invitation", async () => {
  const { server, page, ann } = await scene();
  for (const name of ["mails", "calendar"]) {
    const url = `/page/${name}?as=${ann}`;
    expect((await server.inject({ method: "POST", url })).statusCode).toBe(303);
  }
  expect((await page(`/page/mails?as=${ann}`)).body).toContain("← eve@example.org 报价 · Offer 1");
  expect((await page(`/page/calendar?as=${ann}`)).body).toContain("评审 · Review 1 (Bob) Ann ✓");
  const documents = await server.inject({ method: "POST", url: `/page/documents?as=${ann}` });
  expect(documents.statusCode).toBe(404);
});
