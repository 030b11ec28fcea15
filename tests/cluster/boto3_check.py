"""Uses attachd's sandbox as any user of EC2 would, through boto3. Argument: the endpoint."""

import json
import sys
import time
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = sys.argv[1]
ZONE = "us-east-1a"

ec2 = boto3.client(
    "ec2",
    endpoint_url=ENDPOINT,
    region_name="us-east-1",
    aws_access_key_id="any",
    aws_secret_access_key="any",
    config=Config(retries={"total_max_attempts": 1}, proxies={}),
)


def refused(code, status, call, **arguments):
    """The call must be refused with this code and HTTP status."""
    try:
        call(**arguments)
    except ClientError as error:
        got = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        assert got == (code, status), f"{got} instead of {(code, status)}"
        return error.response["Error"]["Message"]
    raise AssertionError(f"{code} expected, but the call was accepted")


def until(what, condition):
    """Waits a while for a condition; its value."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within 20 s: {what}")


def volume(volume_id):
    return ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]


def attachment_state(volume_id):
    attachments = volume(volume_id)["Attachments"]
    return attachments[0]["State"] if attachments else None


def control(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{ENDPOINT}/sandbox/{path}", data=data, method=method, headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        text = answer.read()
        return json.loads(text) if text else None


# A world: zones, two instances, volumes.
zones = [zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]]
assert zones == ["us-east-1a", "us-east-1b", "us-east-1c"], zones
placement = {"AvailabilityZone": ZONE}
run = ec2.run_instances(ImageId="ami-1", InstanceType="m5.large", MinCount=2, MaxCount=2, Placement=placement)
one, two = [instance["InstanceId"] for instance in run["Instances"]]
assert run["Instances"][0]["State"] == {"Code": 0, "Name": "pending"}, run
ec2.get_waiter("instance_running").wait(InstanceIds=[one, two], WaiterConfig={"Delay": 1})
statuses = ec2.describe_instance_status(InstanceIds=[one, two])["InstanceStatuses"]
assert {status["SystemStatus"]["Status"] for status in statuses} == {"ok"}, statuses

# Status checks say what they find, of running instances alone; one unknown id fails the call.
assert statuses[0]["InstanceStatus"]["Status"] == "initializing", statuses
control("POST", "checks", {"instance": one, "status": "ok"})
control("POST", "checks", {"instance": two, "status": "impaired"})
statuses = {s["InstanceId"]: s for s in ec2.describe_instance_status(InstanceIds=[one, two])["InstanceStatuses"]}
assert (statuses[one]["InstanceStatus"]["Status"], statuses[two]["InstanceStatus"]["Status"]) == ("ok", "impaired"), statuses
assert statuses[two]["InstanceState"]["Name"] == "running", statuses
control("POST", "checks", {"instance": two, "status": "ok"})
refused("InvalidInstanceID.NotFound", 400, ec2.describe_instance_status, InstanceIds=[one, "i-0000000000000ffff"])

made = ec2.create_volume(AvailabilityZone=ZONE, Size=20, VolumeType="gp3")
data = made["VolumeId"]
assert (made["State"], made["Size"], made["VolumeType"]) == ("creating", 20, "gp3"), made
shared = ec2.create_volume(AvailabilityZone=ZONE, Size=8, VolumeType="io2", Iops=100, MultiAttachEnabled=True)
assert shared["MultiAttachEnabled"], shared
elsewhere = ec2.create_volume(AvailabilityZone="us-east-1b", Size=8)["VolumeId"]
ec2.get_waiter("volume_available").wait(VolumeIds=[data, shared["VolumeId"], elsewhere], WaiterConfig={"Delay": 1})

# A volume's status: whether its blocks are all there.
def initialization_of(volume_id):
    [status] = ec2.describe_volume_status(VolumeIds=[volume_id])["VolumeStatuses"]
    assert (status["VolumeId"], status["VolumeStatus"]["Status"]) == (volume_id, "ok"), status
    return {d["Name"]: d["Status"] for d in status["VolumeStatus"]["Details"]}["initialization-state"]


assert initialization_of(data) == "completed"
control("POST", "initializing", {"volume": data, "initializing": True})
assert initialization_of(data) == "initializing"
control("POST", "initializing", {"volume": data, "initializing": False})
everything = {s["VolumeId"] for s in ec2.describe_volume_status()["VolumeStatuses"]}
assert {data, shared["VolumeId"], elsewhere} <= everything, everything
refused("InvalidVolume.NotFound", 400, ec2.describe_volume_status, VolumeIds=[data, "vol-0000000000000ffff"])
refused("InvalidParameterCombination", 400, ec2.describe_volume_status, VolumeIds=[data], MaxResults=5)

# Attach: at once in-use, a while attaching, then attached where it was asked for.
answer = ec2.attach_volume(VolumeId=data, InstanceId=one, Device="/dev/xvdba")
assert (answer["State"], answer["Device"], answer["InstanceId"]) == ("attaching", "/dev/xvdba", one), answer
assert answer["AttachTime"].microsecond == 0, answer
assert volume(data)["State"] == "in-use"
until("attached", lambda: attachment_state(data) == "attached")
mappings = ec2.describe_instances(InstanceIds=[one])["Reservations"][0]["Instances"][0]["BlockDeviceMappings"]
assert {m["DeviceName"]: m["Ebs"]["VolumeId"] for m in mappings}["/dev/xvdba"] == data, mappings
assert "/dev/xvda" in {m["DeviceName"] for m in mappings}, mappings

# What EC2 refuses.
refused("VolumeInUse", 400, ec2.attach_volume, VolumeId=data, InstanceId=two, Device="/dev/xvdba")
refused("InvalidVolume.ZoneMismatch", 400, ec2.attach_volume, VolumeId=elsewhere, InstanceId=one, Device="/dev/xvdbb")
taken = refused("InvalidParameterValue", 400, ec2.attach_volume, VolumeId=shared["VolumeId"], InstanceId=one, Device="/dev/sdba1")
assert "not a valid EBS device name" in taken, taken
taken = refused("InvalidParameterValue", 400, ec2.attach_volume, VolumeId=shared["VolumeId"], InstanceId=one, Device="xvdba")
assert "already in use" in taken, taken
missing = "vol-0000000000000ffff"
refused("InvalidVolume.NotFound", 400, ec2.attach_volume, VolumeId=missing, InstanceId=one, Device="/dev/xvdbb")
refused("InvalidVolume.NotFound", 400, ec2.describe_volumes, VolumeIds=[data, missing])
refused("InvalidInstanceID.NotFound", 400, ec2.attach_volume, VolumeId=data, InstanceId="i-0000000000000ffff", Device="/dev/xvdbb")
refused("InvalidInstanceID.NotFound", 400, ec2.describe_instances, InstanceIds=["i-0000000000000ffff"])
refused("InvalidAttachment.NotFound", 400, ec2.detach_volume, VolumeId=data, InstanceId=two)
refused("InvalidAttachment.NotFound", 400, ec2.detach_volume, VolumeId=data, InstanceId=one, Device="/dev/xvdbb")
refused("InvalidParameterValue", 400, ec2.describe_volumes, VolumeIds=["volume-1"])
refused("InvalidParameterValue", 400, ec2.describe_volumes, MaxResults=4)
refused("InvalidParameterCombination", 400, ec2.describe_volumes, VolumeIds=[data], MaxResults=5)
refused("InvalidParameterValue", 400, ec2.describe_volumes, Filters=[{"Name": "colour", "Values": ["red"]}])
refused("DryRunOperation", 412, ec2.detach_volume, VolumeId=data, InstanceId=one, DryRun=True)
refused("InvalidAction", 400, ec2.describe_vpcs)
assert attachment_state(data) == "attached", "a refusal changes nothing"

# A guest that holds the volume keeps a detach busy.
control("POST", "guest-holds", {"instance": one, "volume": data, "holds": True})
assert ec2.detach_volume(VolumeId=data, InstanceId=one, Device="/dev/xvdba")["State"] == "detaching"
until("busy", lambda: attachment_state(data) == "busy")
control("POST", "guest-holds", {"instance": one, "volume": data, "holds": False})
until("detached", lambda: attachment_state(data) is None)
assert volume(data)["State"] == "available"
refused("IncorrectState", 400, ec2.detach_volume, VolumeId=data, InstanceId=one)

# Filters and paging: everything once, and what is unknown is left out.
many = [ec2.create_volume(AvailabilityZone=ZONE, Size=1)["VolumeId"] for _ in range(12)]
wanted = many + [missing]
pages = ec2.get_paginator("describe_volumes").paginate(
    Filters=[{"Name": "volume-id", "Values": wanted}], PaginationConfig={"PageSize": 5}
)
sizes, seen = [], []
for page in pages:
    sizes.append(len(page["Volumes"]))
    seen += [v["VolumeId"] for v in page["Volumes"]]
assert sizes == [5, 5, 2] and sorted(seen) == sorted(many), (sizes, seen)
until("created", lambda: all(volume(v)["State"] == "available" for v in many))
by_state = ec2.describe_volumes(Filters=[{"Name": "status", "Values": ["in-use"]}])["Volumes"]
assert by_state == [], by_state
wild = ec2.describe_volumes(Filters=[{"Name": "volume-id", "Values": [data[:-1] + "?"]}])["Volumes"]
assert data in {v["VolumeId"] for v in wild}, wild

# Several instances share a volume; detaching takes an instance.
for instance in (one, two):
    ec2.attach_volume(VolumeId=shared["VolumeId"], InstanceId=instance, Device="/dev/xvdbc")
until("both attached", lambda: [a["State"] for a in volume(shared["VolumeId"])["Attachments"]] == ["attached"] * 2)
on_one = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [one]}])["Volumes"]
assert [v["VolumeId"] for v in on_one] == [shared["VolumeId"]], on_one

# Stop and start keep attachments, terminate ends them.
stopping = ec2.stop_instances(InstanceIds=[one])["StoppingInstances"][0]
assert (stopping["CurrentState"]["Name"], stopping["PreviousState"]["Name"]) == ("stopping", "running"), stopping
ec2.get_waiter("instance_stopped").wait(InstanceIds=[one], WaiterConfig={"Delay": 1})
assert len(volume(shared["VolumeId"])["Attachments"]) == 2
assert ec2.describe_instance_status(InstanceIds=[one])["InstanceStatuses"] == []
[stopped] = ec2.describe_instance_status(InstanceIds=[one], IncludeAllInstances=True)["InstanceStatuses"]
assert (stopped["InstanceState"]["Name"], stopped["InstanceStatus"]["Status"]) == ("stopped", "not-applicable"), stopped
ec2.start_instances(InstanceIds=[one])
ec2.terminate_instances(InstanceIds=[one, two])
ec2.get_waiter("instance_terminated").wait(InstanceIds=[one, two], WaiterConfig={"Delay": 1})
assert volume(shared["VolumeId"])["State"] == "available"
refused("IncorrectState", 400, ec2.attach_volume, VolumeId=data, InstanceId=one, Device="/dev/xvdba")

types = ec2.describe_instance_types(InstanceTypes=["c8gn.48xlarge"])["InstanceTypes"]
assert types[0]["EbsInfo"]["MaximumEbsCards"] == 2, types
refused("InvalidInstanceType", 400, ec2.describe_instance_types, InstanceTypes=["nonsense"])

ec2.delete_volume(VolumeId=data)
until("deleted", lambda: not ec2.describe_volumes(Filters=[{"Name": "volume-id", "Values": [data]}])["Volumes"])

# Faults put in from outside, and what the sandbox counted.
fault = {"fault": "refuse", "action": "DescribeVolumes", "code": "RequestLimitExceeded", "message": "slow", "count": 1}
control("POST", "faults", fault)
refused("RequestLimitExceeded", 503, ec2.describe_volumes)
ec2.describe_volumes()
causes = [ended["cause"] for ended in control("GET", "ended")]
assert causes == ["detached", "instanceTerminated", "instanceTerminated"], causes
counts = control("GET", "counts")
assert counts["AttachVolume"]["OK"] == 3 and counts["AttachVolume"]["VolumeInUse"] == 1, counts
assert counts["DescribeVolumes"]["RequestLimitExceeded"] == 1, counts
state = control("GET", "state")
assert {instance["state"] for instance in state["instances"]} == {"terminated"}, state

print("every check passed")
