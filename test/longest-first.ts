import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Those that take half a minute or more: begun last, one would run while all others are done. */
const long = new RegExp(
  [
    "/test/(?:bench|chaos|upgrade|launcher|packages)/",
    "e2e/(?:approvals|cards|clocks|console|conversation|feedback|half-open|hand-over|http|inputs-files)\\b",
    "e2e/(?:model-failures|policies|python-runner|questions|redis-nodes|rolling-restart|runners|states|team)\\.",
    "sandbox/src/(?:attack|probe|sandbox-life|sandbox-run)\\.",
    "runner/src/(?:levels|process)\\.",
    "store/src/queues/small-scripts\\.",
    "ingress/src/process\\.",
    "agent-worker/src/(?:turn|waiting)-crash\\.",
    "console/src/access\\.",
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
