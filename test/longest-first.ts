import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Those that take most of a minute: begun last, one would run while all others are done. */
const long =
  /\/test\/(?:chaos|upgrade|launcher)\/|rolling-restart|redis-nodes|half-open|e2e\/(?:runners|approvals|policies|cards|http|inputs-files)\.|attack\.test|sandbox-life|runner\/src\/(?:process|levels)\./;

/** The order of a fresh clone, where nothing is known of how long files took. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification): boolean => long.test(moduleId);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}
