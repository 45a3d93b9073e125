import type { HandlerTool } from "@larkline/tool-kit";
import { approvalTools } from "./approvals.ts";
import { baseTools } from "./base/base.ts";
import { fieldTools } from "./base/fields.ts";
import { calendarTools } from "./calendar/index.ts";
import { attachmentTools } from "./documents/attachments.ts";
import { boardTools } from "./documents/boards.ts";
import { commentTools } from "./documents/comments.ts";
import { readingTools } from "./documents/reading.ts";
import { writingTools } from "./documents/writing.ts";
import { downloadTools } from "./downloads.ts";
import { driveTools } from "./drive.ts";
import { importTools } from "./imports.ts";
import { mailTools } from "./mail.ts";
import { meetingTools } from "./meetings.ts";
import { messageTools } from "./messages.ts";
import { peopleTools } from "./people.ts";
import { completed, type WorkToolSettings } from "./platform.ts";
import { sharingTools } from "./sharing.ts";
import { sheetTools } from "./sheets.ts";
import { taskTools } from "./tasks.ts";

export type { WorkToolSettings } from "./platform.ts";

/** Feishu's work tools: each acts as the person who asks. */
export function feishuTools(given: WorkToolSettings = {}): HandlerTool[] {
  const settings = completed(given);
  const makers = [
    ...readingTools,
    ...writingTools,
    ...commentTools,
    ...attachmentTools,
    ...boardTools,
    ...baseTools,
    ...fieldTools,
    ...calendarTools,
    ...taskTools,
    ...meetingTools,
    ...messageTools,
    ...peopleTools,
    ...sheetTools,
    ...driveTools,
    ...downloadTools,
    ...importTools,
    ...sharingTools,
    ...approvalTools,
    ...mailTools,
  ];
  return makers.map((make) => make(settings));
}

export default feishuTools();
