import { afterAll, beforeAll } from "vitest";
import { namedPerson } from "../system/asking.ts";
import { createPromptedModel } from "../system/model-script.ts";
import type { Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

/** What is said to some messages. */
export const model = createPromptedModel();
/** People and a chat of whom the configuration says something. */
export const ids = {
  ann: "ou_ann",
  max: "ou_max",
  lena: "ou_lena",
  olaf: "ou_olaf",
  zoe: "ou_zoe",
  team: "oc_team",
  lead: "ou_lead_of_the_team",
  hasty: "ou_hasty",
  late: "ou_late",
  keeper: "ou_keeper",
  alone: "ou_alone",
  aloneHasty: "ou_alone_hasty",
};

/** The one deployment of all suites on approvals: what it has recorded and what models were asked is that of all. */
export let system: System;
/** Is asked about every call besides its requester. */
export let lead: Writer;

/** Starts the deployment for the file that calls it. */
export function useDeployment(): void {
  beforeAll(async () => {
    system = await startSystem({
      ingresses: 2,
      workers: 2,
      script: model.script,
      tools: ["recording", "approval", "holding"],
      lines: true,
      env: {
        RUNNER_CONCURRENCY: "8",
      },
      config: {
        roles: { leads: { people: [ids.lena], groups: ["g_operations"] } },
        permissions: [
          {
            tools: ["ask_once"],
            chats: [ids.team],
            do: "ask",
            reason: "Two of them have to see this.",
            approvers: { people: [ids.ann, ids.max], roles: ["leads"], fourEyes: true, count: 2 },
          },
          // They alone decide.
          {
            tools: ["ask_*"],
            people: [ids.alone],
            do: "ask",
            approvers: { requester: true },
            reason: "It is yours.",
          },
          {
            tools: ["ask_*"],
            people: [ids.aloneHasty],
            do: "ask",
            approvers: { requester: true },
            expiresMs: 10_000,
          },
          // The shortest time that a configuration takes.
          { tools: ["ask_*"], people: [ids.hasty, ids.late], do: "ask", expiresMs: 10_000 },
          {
            tools: ["ask_pure"],
            people: [ids.keeper],
            do: "ask",
            remember: true,
            reason: "Touches the archive.",
          },
        ],
        approvals: {
          approvers: { requester: true, people: [ids.lead] },
          unknownOutcome: "ask",
          maxDenials: 3,
        },
      },
    });
    lead = namedPerson(system, ids.lead, "Lena");
  });
  afterAll(async () => await system.close());
}
