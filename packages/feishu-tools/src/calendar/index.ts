import { freeTimeTool, listTool } from "./reading.ts";
import { answerTool, cancelTool, changeTool, createTool } from "./writing.ts";

/** Calendar: list, free time, create, change, cancel, answer. */
export const calendarTools = [
  listTool,
  freeTimeTool,
  createTool,
  changeTool,
  cancelTool,
  answerTool,
];
