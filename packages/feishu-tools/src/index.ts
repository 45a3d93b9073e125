import type { HandlerTool } from "@larkline/tool-kit";
import { baseTools } from "./base/base.ts";
import { calendarTools } from "./calendar/index.ts";
import { readingTools } from "./documents/reading.ts";
import { writingTools } from "./documents/writing.ts";
import { meetingTools } from "./meetings.ts";
import { messageTools } from "./messages.ts";
import { peopleTools } from "./people.ts";
import type { WorkToolSettings } from "./platform.ts";
import { taskTools } from "./tasks.ts";

export type { WorkToolSettings } from "./platform.ts";

/** Feishu's work tools: each acts as the person who asks. */
export function feishuTools(settings: WorkToolSettings = {}): HandlerTool[] {
  return [
    ...readingTools(settings),
    ...writingTools(settings),
    ...baseTools(settings),
    ...calendarTools(settings),
    ...taskTools(settings),
    ...meetingTools(settings),
    ...messageTools(settings),
    ...peopleTools(settings),
  ];
}

export default feishuTools();
