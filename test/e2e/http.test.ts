import { useDeployment } from "./http-deployment.ts";
// The first: nothing may have failed before.
import "./http-conversations.suite.ts";
import "./http-approvals.suite.ts";
import "./http-replicas.suite.ts";
import "./http-typed-runs.suite.ts";
import "./http-broken-connections.suite.ts";

useDeployment();
