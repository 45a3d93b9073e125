import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Those that take a minute or more on a busy machine: begun last, one would run while all others are done. */
const long = new RegExp(
  [
    "/test/(?:bench|chaos|e2e|upgrade|launcher|packages|playground|simulate)/",
    "test/deploy/redis-users\\.",
    "sandbox/src/(?:attack|probe|process-pool|sandbox-life|sandbox-run)\\.",
    "runner/src/(?:levels|mcp|mount|process|process-level)\\.",
    "store/src/(?:single-node|queues/small-scripts)\\.",
    "ingress/src/(?:chat-api|process)\\.",
    "agent-worker/src/(?:helpers|turn-crash|waiting-crash)\\.",
    "agent-worker/src/attachments/",
    "console/src/(?:access|agent|pages|queue-board|runs|trends)\\.",
    "cli/src/(?:people|setup)\\.",
  ].join("|"),
);

/** The order of a fresh clone, where nothing is known of how long files took. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification): boolean => long.test(moduleId);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}
