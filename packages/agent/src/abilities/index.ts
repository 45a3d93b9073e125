import type { Ability } from "../turn/ability.ts";
import { approvals } from "./approvals/approvals.ts";
import { files } from "./files/files.ts";
import { handover } from "./handover/handover.ts";
import { helpers } from "./helpers/helper.ts";
import { groupReads, privateReads } from "./identity/group-reads.ts";
import { identity } from "./identity/identity.ts";
import { memory } from "./memory/memory.ts";
import { questions, serverQuestions } from "./questions/question.ts";
import { results } from "./results/results.ts";
import { schedules } from "./schedules/schedule.ts";
import { structured } from "./structured/structured-answer.ts";
import { teams } from "./team/team.ts";
import { todos } from "./todos/todos.ts";

/** All abilities. The order is that of their tools, and of their panels on a card. */
export const allAbilities: readonly Ability[] = [
  approvals,
  results,
  files,
  todos,
  memory,
  questions,
  serverQuestions,
  schedules,
  structured,
  helpers,
  handover,
  teams,
  privateReads,
  identity,
  groupReads,
];
