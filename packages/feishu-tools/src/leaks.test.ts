import { expect, it } from "vitest";
import { toolWorld } from "./world.fixture.ts";

const appId = "cli_0123456789abcdef";
const zone = "Asia/Shanghai";
const day = { from: "2026-12-07T00:00+08:00", to: "2026-12-08T00:00+08:00", time_zone: zone };
const at = (time: string): number => Date.parse(`2026-12-07T${time}+08:00`);
/** Everything that only Ann may read has this word. */
const secret = "Kingfisher";

it("gives Bob nothing of what only Ann may read, whatever he asks for and whichever id he knows", async () => {
  const { platform, ann, bob, tools, call } = await toolWorld();
  const { calendar, tasks, meetings } = platform.work;
  const chat = platform.addChat({ type: "group", name: `${secret} group`, members: [ann] }).chatId;
  const { messageId } = await platform.sendMessage({
    chatId: chat,
    from: ann,
    appId,
    text: `${secret} message`,
  });
  const event = calendar.addEvent({
    organizer: ann,
    summary: `${secret} event`,
    start: at("09:00"),
    end: at("10:00"),
  }).eventId;
  const task = tasks.addTask({ creator: ann, summary: `${secret} task`, assignees: [ann] }).guid;
  const span = { start: at("09:00"), end: at("10:00") };
  const { meetingId } = meetings.addMeeting({
    topic: `${secret} meeting`,
    organizer: ann,
    participants: [],
    ...span,
  });
  const minutes = {
    title: `${secret} minutes`,
    owner: ann,
    participants: [],
    summary: secret,
    createdAt: at("10:00"),
  };
  const { token } = meetings.addMinutes(minutes);

  const sheet = platform.work.sheets.addSpreadsheet({
    owner: ann,
    title: `${secret} sheet`,
    rows: [[secret]],
  });
  const range = `${sheet.sheets[0]?.sheetId}!A1:B2`;
  const cells = { spreadsheet: sheet.token, range };
  const folder = platform.work.drive.addFile({ owner: ann, name: secret, type: "folder" }).token;
  const file = platform.work.drive.addFile({ owner: ann, name: `${secret}.md`, folder }).token;
  const plan = platform.work.docs.addDocument({
    owner: ann,
    title: secret,
    markdown: secret,
  }).documentId;
  const { comment } = platform.work.docs.comment({
    documentId: plan,
    by: ann,
    text: secret,
    quote: secret,
  });
  const ofComment = { document: plan, comment: comment.commentId, comment_text: "x" };
  const { tables } = platform.work;
  const base = tables.addBase({ owner: ann, name: secret }).appToken;
  const { tableId } = tables.addTable(base, {
    name: secret,
    fields: [
      { name: secret, type: 1 },
      { name: "x", type: 1 },
    ],
  });
  tables.addRecord(base, tableId, { [secret]: secret });
  const ofTable = { base, table: tableId };
  const ofFile = { file, type: "file", name: `${secret}.md`, with: bob, with_name: "Bob" };
  const { mail, approvals } = platform.work;
  const files = [{ name: `${secret}.md`, base64: Buffer.from(secret).toString("base64") }];
  const mailId = mail.addMail({
    to: ann,
    from: "x@example.org",
    subject: secret,
    text: secret,
    files,
  }).id;
  const words = { to: [mail.addressOf(bob)], subject: "x", text: "x" };
  const draft = mail.addDraft({ owner: ann, ...words, subject: secret }).id;
  const approval = approvals.addApproval({
    initiator: ann,
    name: secret,
    form: [{ name: "Why", value: secret }],
    approvers: [ann],
  });
  const decision = { task: approval.tasks[0]?.taskId, form: "x", decision: "approve" };

  const asks: Record<string, object[]> = {
    read_document_comments: [{ document: plan }],
    comment_on_document: [{ document: plan, text: "x" }],
    reply_to_comment: [{ ...ofComment, text: "x" }],
    resolve_comment: [ofComment],
    list_tables: [{ base }],
    search_records: [ofTable],
    change_field: [{ ...ofTable, field: "x", name: "y" }],
    delete_field: [{ ...ofTable, field: "x", filled_rows: 0 }],
    list_sheets: [{ spreadsheet: sheet.token }],
    read_sheet: [cells],
    find_in_sheet: [{ ...cells, text: "king" }],
    write_sheet: [{ ...cells, range: range.replace(":B2", ""), old_rows: [[null]], rows: [["x"]] }],
    append_rows: [{ spreadsheet: sheet.token, sheet: range.split("!")[0], rows: [["x"]] }],
    list_drive_files: [{}, { folder }],
    create_folder: [{ name: "x", folder }],
    upload_text_file: [{ name: "x", text: "x", folder }],
    copy_file: [{ token: file, type: "file", name: "x" }],
    move_file: [{ token: file, type: "file", name: "x", folder, folder_name: "x" }],
    delete_drive_file: [{ token: file, type: "file", name: "x" }],
    download_file: [{ file }, { file: messageId }, { file: `https://feishu.cn/file/${file}` }],
    export_document: [
      { document: plan, format: "pdf" },
      { document: `https://feishu.cn/sheets/${sheet.token}`, format: "xlsx" },
    ],
    add_picture: [{ document: plan, picture: file }],
    attach_file: [
      { document: plan, file },
      { document: plan, file: messageId },
    ],
    import_file: [
      { file, as: "document" },
      { file: messageId, as: "document" },
    ],
    draw_diagram: [{ document: plan, syntax: "mermaid", diagram: "graph TD; A" }],
    list_access: [{ file, type: "file" }],
    share_file: [{ ...ofFile, permission: "edit" }],
    unshare_file: [ofFile],
    list_mails: [{ time_zone: zone }],
    read_mail: [{ mail: mailId, time_zone: zone }],
    download_mail_file: [{ mail: mailId, file: `${secret}.md` }],
    draft_mail: [{ ...words, files: [file] }],
    send_mail: [{ draft, ...words }],
    list_approvals: [{}, { which: "started" }, { which: "decided" }],
    read_approval: [{ instance: approval.instanceCode }],
    decide_approval: [{ instance: approval.instanceCode, ...decision }],
    feishu_api_read: [
      {
        path: "/open-apis/approval/v4/tasks/query",
        query: { topic: "1", user_id: ann, user_id_type: "open_id" },
      },
      { path: `/open-apis/sheets/v2/spreadsheets/${sheet.token}/values/${range}` },
    ],
    feishu_api: [{ method: "DELETE", path: `/open-apis/drive/v1/files/${file}` }],
    list_events: [day, { ...day, query: secret }],
    find_free_time: [
      { ...day, people: [ann], minutes: 30 },
      { ...day, people: [ann], minutes: 30, room: "" },
    ],
    change_event: [
      { event, event_title: "x", time_zone: zone },
      { event, event_title: "x", time_zone: zone, title: "x" },
      { event, event_title: "x", time_zone: zone, add_people: [bob] },
    ],
    cancel_event: [{ event, title: "x" }],
    answer_invitation: [{ event, title: "x", answer: "accept" }],
    list_tasks: [
      { time_zone: zone, state: "all" },
      { time_zone: zone, state: "all", query: secret },
    ],
    change_task: [{ task }, { task, done: true }, { task, add_assignees: [bob] }],
    comment_task: [{ task, text: "hello" }],
    find_meetings: [day, { ...day, query: secret }],
    read_minutes: [
      { of: meetingId, time_zone: zone },
      { of: token, time_zone: zone },
      { of: `https://feishu.cn/minutes/${token}`, time_zone: zone },
    ],
    search_messages: [
      { query: secret, time_zone: zone },
      { query: secret, time_zone: zone, chat },
      { query: secret, time_zone: zone, writer: ann },
    ],
    read_messages: [{ chat, time_zone: zone }],
    send_as_person: [
      { to: chat, to_name: "x", text: "hi" },
      { to: ann, to_name: "Ann", text: "hi", reply_to: messageId },
    ],
    find_people: [{ name: secret }],
  };
  let asked = 0;
  for (const [name, inputs] of Object.entries(asks)) {
    expect(tools.map((tool) => tool.name)).toContain(name);
    for (const input of inputs) {
      const outcome = await call(name, input, { person: bob });
      expect(JSON.stringify(outcome), name).not.toContain(secret);
      asked += 1;
    }
  }
  expect(asked).toBe(74);
  const seen = platform.apiCalls.filter(
    ({ path, person }) => !path.includes("oauth") && person !== bob,
  );
  expect(seen).toEqual([]);
  expect(platform.work.changes.filter(({ by }) => by !== ann && by !== bob)).toEqual([]);
  expect(platform.messages(chat)).toHaveLength(1);
  expect(tasks.tasks.get(task)).toMatchObject({
    completedAt: 0,
    comments: [],
    members: [{ id: ann }],
  });
});
