import type { HandlerTool } from "@larkline/tool-kit";
import { completed, type WorkToolSettings } from "../platform.ts";
import { freeTimeTool, listTool } from "./reading.ts";
import { answerTool, cancelTool, changeTool, createTool } from "./writing.ts";

/** Calendar: list, free time, create, change, cancel, answer. */
export function calendarTools(given: WorkToolSettings = {}): HandlerTool[] {
  const settings = completed(given);
  const makers = [listTool, freeTimeTool, createTool, changeTool, cancelTool, answerTool];
  return makers.map((make) => make(settings));
}
